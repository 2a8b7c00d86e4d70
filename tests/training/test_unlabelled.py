"""Texts without labels: what both tokenizations predict together teaches each of them."""

import gzip
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import log_softmax, softmax

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import RunConfig, TaskConfig, TrainConfig, UnlabelledConfig
from greenadapt.errors import ConflictError, InputError, UsageError
from greenadapt.models.machine import Machine
from greenadapt.models.rows import Rows
from greenadapt.models.weights import open_model
from greenadapt.progress import Silent
from greenadapt.stages.finetune.compare import compare
from greenadapt.stages.finetune.request import FinetuneRequest, read_unlabelled
from greenadapt.stages.finetune.train import check_finetune, finetune
from greenadapt.tasks.base import Encoder, Feature, TaskData, make_task
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import Training
from greenadapt.training.views import PairedDataset, UnlabelledDataset, unlabelled_inputs
from tests.conftest import tiny_model_in
from tests.support.small_inputs import assert_same, weights_of
from tests.support.small_multitask import request as request_of_many
from tests.support.small_tasks import (
    TinyModel,
    adapted,
    ner_file,
    ner_request,
    sentences,
    session,
    texts_file,
)

pytestmark = pytest.mark.usefixtures("one_thread")
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MU = 3.0
BOTH = TrainConfig(mix="both", epochs=5, batch_size=16, learning_rate=1e-3)
KINDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "ner": (ner_file, "ner", {}),
    "classes": (texts_file, "classification", {}),
    "numbers": (texts_file, "classification", {"numbers": True}),
}


class Prepared:
    """A model, labelled examples and texts without labels."""

    def __init__(self, kind: str, folder: Path, **config: Any) -> None:
        write, name, options = KINDS[kind]
        self.checkpoint = Checkpoint.open(
            adapted(lambda *args, **more: tiny_model_in(folder, *args, **more), **{**NO_DROPOUT, **config})
        )
        encoder = Encoder.of(self.checkpoint, 64)
        path = write(folder / f"examples.{'tsv' if name == 'ner' else 'jsonl'}", 8, **options)
        task = make_task(TaskConfig(task=name))
        examples = task.read(str(path), Silent())
        self.task = task.fit(examples, Silent())
        self.items = self.task.training(examples, encoder, 0, Silent())
        text = folder / "text.txt"
        text.write_text("".join(" ".join(words) + "\n" for words in sentences(12, seed=3)), "utf-8")
        read = read_unlabelled(self.task, str(text), Silent())
        self.read = list(self.task.inference(read, encoder))
        one = TaskData("", self.task, encoder, examples, {}, {}, None, "")
        self.unlabelled = unlabelled_inputs(one, read, self.items, 100)
        self.rows = Rows.seen([*self.items, *self.unlabelled], encoder.special)

    def training(self, train: TrainConfig, batch: int = 0, weight: float = MU, max_tokens: int = 4096) -> Training:
        """With ``batch`` texts without labels a step."""
        dataset: Any = TaskDataset.of(self.items, self.rows, self.task.head, 0)
        if train.agreement:
            dataset = PairedDataset.of(dataset, self.items, train.agreement)
        texts = None
        if batch:
            views = TaskDataset.of(self.unlabelled, self.rows, self.task.head, 0)
            texts = UnlabelledDataset.of(views, self.unlabelled, weight)
        plan = Plan(train, RunConfig(max_tokens=max_tokens), 5)
        model = open_model(self.checkpoint, self.task.head, self.task.head_config(), self.rows, seed=5)
        return Training(
            model, Feed([dataset], plan, unlabelled=texts, unlabelled_batch=batch), Machine.start("float32")
        )


def by_hand(prepared: Prepared, model: Any) -> float:
    """Mean over the words of all texts with an added word, or over the texts, of KL(t‖p) + KL(t‖q); of numbers the
    squared distances to the mean; from the logits for one input at a time.
    """
    model.eval()

    def run(feature: Feature) -> np.ndarray:
        ids = torch.from_numpy(prepared.rows.compact(feature.ids))[None]
        with torch.no_grad():
            logits = model(input_ids=ids)["logits"][0].double().numpy()
        return logits[feature.units >= 0] if logits.ndim == 2 else logits[None]

    found = []
    for one in prepared.read:
        for base, expanded in zip(one.base, one.expanded, strict=True):
            views = [run(base), run(expanded)]
            middle = (views[0] + views[1]) / 2
            if list(base.ids) == list(expanded.ids):
                continue
            if prepared.task.head_config()["problem_type"] == "regression":
                found.append(sum((view - middle)[:, 0] ** 2 for view in views))
                continue
            teacher, log_teacher = softmax(middle, axis=-1), log_softmax(middle, axis=-1)
            found.append(sum((teacher * (log_teacher - log_softmax(view, axis=-1))).sum(-1) for view in views))
    return float(np.concatenate(found).mean())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_labels_and_the_distance_to_both_views_by_hand(kind: str, tmp_path: Path) -> None:
    prepared = Prepared(kind, tmp_path)
    n = len(prepared.unlabelled)
    assert 0 < n < len(prepared.read)  # those without an added word are left out
    train = replace(BOTH, agreement=0.5, learning_rate=1e-9, warmup=0.0)
    labelled = prepared.training(train)
    first = labelled.n_steps // 5  # the teacher begins then
    divergence = by_hand(prepared, labelled.model)
    without = [step.loss for step in islice(labelled.steps(), first + 1)]
    for max_tokens in (4096, 30):
        training = prepared.training(train, n, 1 / divergence, max_tokens)
        with_texts = [step.loss for step in islice(training.steps(), first + 1)]
        assert with_texts[:first] == pytest.approx(without[:first], abs=1e-5)
        assert with_texts[first] == pytest.approx(without[first] + 1, rel=1e-3)


@pytest.mark.slow
def test_no_gradient_goes_to_the_teacher(tmp_path: Path) -> None:
    """The gradient of KL(t‖p) + KL(t‖q) by the logits of a view is its probabilities less the teacher's."""
    prepared = Prepared("classes", tmp_path)
    texts = prepared.training(BOTH, len(prepared.unlabelled))._feed.unlabelled
    assert texts is not None
    batch = texts.batch(np.arange(len(prepared.unlabelled)), 0)
    logits = torch.randn(len(batch.ids), 2, generator=torch.Generator().manual_seed(1), requires_grad=True)
    batch.loss_sum("SequenceClassification", {"logits": logits}).backward()
    first, second = logits.detach().double()[batch.places].numpy()
    teacher = softmax((first + second) / 2, axis=-1)
    gradient = logits.grad.double().numpy()
    for view, places in zip((first, second), batch.places, strict=True):
        np.testing.assert_allclose(gradient[places], MU * (softmax(view, axis=-1) - teacher), atol=1e-5)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_bit_for_bit_and_with_no_other_text_or_weight(tmp_path: Path) -> None:
    prepared = Prepared("ner", tmp_path, hidden_dropout_prob=0.1)
    whole = prepared.training(BOTH, 3)
    expected = list(whole.steps())
    assert_same(weights_of(prepared.training(BOTH).model), weights_of(prepared.training(BOTH, 3).model))
    interrupted = prepared.training(BOTH, 3)
    steps = interrupted.steps()
    first = [next(steps) for _ in range(len(expected) - 2)]
    interrupted.save(tmp_path / "state")
    resumed = prepared.training(BOTH, 3)
    assert resumed.restore(tmp_path / "state")
    assert first + list(resumed.steps()) == expected
    assert_same(weights_of(whole.model), weights_of(resumed.model))
    for batch, weight in ((0, MU), (2, MU), (3, 1.0)):
        with pytest.raises(ConflictError):
            prepared.training(BOTH, batch, weight).restore(tmp_path / "state")
    prepared.unlabelled = prepared.unlabelled[:-1]
    with pytest.raises(ConflictError):
        prepared.training(BOTH, 3).restore(tmp_path / "state")


def request(folder: Path, model: Path, text: str, **more: Any) -> FinetuneRequest:
    file = folder / "text.txt"
    file.write_text(text, "utf-8")
    training = replace(BOTH, epochs=2)
    return ner_request(folder, model, **{"training": training, "unlabelled": str(file), **more})


@pytest.mark.slow
def test_a_base_model_to_compare_with_reads_labels_alone(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    text = "".join(" ".join(words) + "\n" for words in sentences(30, seed=3))
    config = UnlabelledConfig(unlabelled_batch=1)
    training = replace(BOTH, epochs=2, max_steps=1000)
    ours = request(tmp_path, model, text, unlabelled_config=config, training=training)
    adapted_one, base = compare(session(tmp_path), ours, [str(model.parent / "base")]).results
    assert adapted_one.manifest.config == base.manifest.config | {"unlabelled_batch": 1, "unlabelled_weight": 1.0}
    assert adapted_one.manifest.counts["unlabelled"] == 10  # the steps: no more are read
    assert "unlabelled" not in base.manifest.inputs
    card = (adapted_one.path / "README.md").read_text("utf-8")
    assert "1809.08370" in card
    assert f"| unlabelled | text.txt | {adapted_one.manifest.counts['unlabelled']} |" in card
    plain = finetune(session(tmp_path, "plain"), replace(ours, unlabelled=None, unlabelled_config=UnlabelledConfig()))
    weights = [load_file(one.path / "model.safetensors") for one in (plain, adapted_one)]
    assert any(not torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    (tmp_path / "text.txt").write_text(text + "more\n", "utf-8")
    assert check_finetune(session(tmp_path), ours).job(None).inputs != adapted_one.manifest.inputs


def test_texts_are_drawn_at_random_the_same_ones_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenadapt.stages.finetune.request._MOST_UNLABELLED", 50)
    file = tmp_path / "text.txt.gz"
    with gzip.open(file, "wt") as stream:
        stream.writelines(f"word{number}\n" for number in range(1000))
    read = read_unlabelled(make_task(TaskConfig(task="ner")), str(file), Silent())
    numbers = [int(one.words[0][4:]) for one in read]
    assert len({*numbers}) == 50
    assert 300 < np.mean(numbers) < 700
    assert numbers != sorted(numbers)
    assert read == read_unlabelled(make_task(TaskConfig(task="ner")), str(file), Silent())


def test_what_cannot_be_taught_is_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    base = str(model.parent / "base")
    for more, fact in (
        ({"training": replace(BOTH, mix="sample")}, "--mix both"),
        ({"memory": base}, "memory"),
        ({"unlabelled": None, "unlabelled_config": UnlabelledConfig(unlabelled_weight=2.0)}, "--unlabelled FILE"),
    ):
        with pytest.raises(UsageError, match=r"unlabelled|without labels") as error:
            request(tmp_path, model, "a virus\n", **more)
        assert fact in str(error.value)
    with pytest.raises(UsageError, match="question answering"):
        FinetuneRequest.of_one(str(model), ("x",), task=TaskConfig(task="qa"), training=BOTH, unlabelled="text.txt")
    with pytest.raises(UsageError, match="one task alone"):
        request_of_many(tmp_path, model, training=BOTH, unlabelled="text.txt")
    with pytest.raises(UsageError, match="has no added words"):
        finetune(session(tmp_path), request(tmp_path, Path(base), "a virus\n"))
    for text, fact in (("", "empty"), ("the heart\n", "both tokenizations are the same")):
        with pytest.raises(InputError, match=fact):
            finetune(session(tmp_path), request(tmp_path, model, text))
    assert not (tmp_path / "run" / "model.safetensors").exists()
