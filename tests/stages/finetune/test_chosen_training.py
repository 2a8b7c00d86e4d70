"""Epochs, rate, batch size, mix and what is kept, where the user leaves them to greenadapt."""

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from greenadapt.config import CHOSEN_FOR_TRAINING, AssessConfig, TaskConfig, TrainConfig
from greenadapt.errors import UsageError
from greenadapt.stages.finetune import compare as comparing
from greenadapt.stages.finetune import cross_validation
from greenadapt.stages.finetune.compare import compare
from greenadapt.stages.finetune.cross_validation import cross_validate
from greenadapt.stages.finetune.request import FinetuneRequest
from tests.conftest import Notes
from tests.support.small_tasks import TinyModel, adapted, facts_file, ner_file, session


def request(folder: Path, model: Path, n: int = 40, **changes: Any) -> FinetuneRequest:
    """A request with ``n`` training examples that leaves all to greenadapt."""
    train = ner_file(folder / f"ner-{n}", n)
    settings = {"task": TaskConfig("ner"), "training": TrainConfig(), "automatic": CHOSEN_FOR_TRAINING, **changes}
    return FinetuneRequest.of_one(str(model), (str(train),), **settings)


def chosen(folder: Path, model: Path, n: int = 40, **changes: Any) -> tuple[TrainConfig, int]:
    """The training, and its number of steps as the note says it."""
    notes = Notes()
    asked = request(folder, model, n, **changes).choose_training()
    asked.note_chosen(n, notes, has_words=True)
    training = asked.training
    [note] = notes.notes
    assert note.startswith(f"{training.epochs} epoch")
    assert f"peak rate {training.learning_rate:g}" in note
    assert (", with word vectors" in note) is training.word_vectors
    assert "--epochs and --learning-rate" in note
    return training, int(note.split(": ")[1].split(" or more steps")[0].replace(",", ""))


@pytest.mark.parametrize("n", [1, 300])
def test_at_least_600_steps_and_4_readings(tiny_model: TinyModel, tmp_path: Path, n: int) -> None:
    model = adapted(tiny_model)
    for folder, mix, views in ((model.parent / "base", "sample", 1), (model, "both", 2)):
        training, steps = chosen(tmp_path, folder, n)
        assert (training.mix, training.batch_size, training.keep) == (mix, 16, "last")
        assert training.word_vectors is (folder == model)
        readings = views * training.epochs
        assert steps == training.epochs * ceil(views * n / 16)
        assert steps >= 600
        assert readings >= 4
        # No epoch could be left out.
        assert readings - views < 4 or steps - ceil(views * n / 16) < 600


@pytest.mark.parametrize(("width", "rate", "least"), [(384, 2e-4, 600), (768, 1e-4, 1200)])
def test_rate_and_steps_go_with_the_hidden_size(
    tiny_model: TinyModel, tmp_path: Path, width: int, rate: float, least: int
) -> None:
    training, steps = chosen(tmp_path, tiny_model(width=width))  # 3 steps an epoch
    assert training.learning_rate == rate
    assert least <= steps < least + 3


def test_a_development_set_chooses_the_epoch(tiny_model: TinyModel, tmp_path: Path) -> None:
    dev = str(ner_file(tmp_path / "dev.tsv"))
    assert chosen(tmp_path, tiny_model(), dev=dev)[0].keep == "best"
    assert chosen(tmp_path, tiny_model(), dev=dev, automatic=CHOSEN_FOR_TRAINING - {"keep"})[0].keep == "last"


@pytest.mark.parametrize("settings", [{"epochs": 3}, {"mix": "base", "batch_size": 64}])
def test_what_the_user_sets_stays(tiny_model: TinyModel, tmp_path: Path, settings: dict[str, Any]) -> None:
    notes = Notes()
    asked = request(
        tmp_path, adapted(tiny_model), training=TrainConfig(**settings), automatic=CHOSEN_FOR_TRAINING - settings.keys()
    ).choose_training()
    asked.note_chosen(40, notes, has_words=True)
    training = asked.training
    assert {name: getattr(training, name) for name in settings} == settings
    assert len(notes.notes) == ("epochs" not in settings)
    if "epochs" not in settings:  # the other settings count
        views = 2 if training.mix == "both" else 1
        assert training.epochs * ceil(views * 40 / training.batch_size) >= 600


def test_a_limit_of_steps_is_named_in_place_of_epochs(tiny_model: TinyModel, tmp_path: Path) -> None:
    notes, training = Notes(), TrainConfig(max_steps=40, mix="both")
    asked = request(tmp_path, tiny_model(), training=training, automatic=CHOSEN_FOR_TRAINING - {"mix"})
    asked.choose_training().note_chosen(40, notes, has_words=False)
    rate = "peak rate 0.0002; --max-steps and --learning-rate change this"
    assert notes.notes == [f"40 steps on 40 examples, each twice, {rate}"]


def test_entities_are_read_in_whole_sentences_and_decoded_together() -> None:
    whole, chunk = TaskConfig(chunk=None, decoding="viterbi"), TaskConfig(chunk=7, decoding="viterbi")
    for set_by_user, automatic, expected in (
        (TaskConfig(), {"chunk", "decoding"}, whole),
        (TaskConfig(chunk=7), {"decoding"}, chunk),
        (TaskConfig(), {"keep"}, TaskConfig()),
        (TaskConfig("qa"), {"chunk", "decoding"}, TaskConfig("qa")),
    ):
        [entry] = FinetuneRequest.of_one("m", ("train.tsv",), task=set_by_user, automatic=automatic).tasks
        assert entry.config == expected
        assert {*entry.automatic} == (automatic - {"keep"} if set_by_user.task == "ner" else set())


def test_models_that_are_compared_make_equally_many_steps(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = adapted(tiny_model)
    trainings: list[TrainConfig] = []

    def check(_: object, checked: FinetuneRequest, __: object = None) -> None:
        trainings.append(checked.training)
        if len(trainings) == 2:
            raise UsageError("stop")

    monkeypatch.setattr(comparing, "check_finetune", check)
    test = str(ner_file(tmp_path / "test.tsv"))
    with pytest.raises(UsageError, match="stop"):
        compare(session(tmp_path), request(tmp_path, model, test=test), [str(model.parent / "base")])
    ours, theirs = trainings
    assert ours == replace(theirs, word_vectors=True)
    assert (ours.mix, ours.epochs) == ("both", 120)  # 80 readings are 5 batches
    trainings.clear()
    facts_file(model)
    monkeypatch.setattr(cross_validation, "check_finetune", check)
    with pytest.raises((UsageError, AttributeError)):
        cross_validate(session(tmp_path), request(tmp_path, model), None, AssessConfig())
    assert trainings == [replace(theirs, epochs=150)]  # of three folds it trains on two, 26 examples: 4 batches
