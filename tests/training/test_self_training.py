"""Self-training: which predicted sentences the second model learns from, and that it is a plain training on them."""

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import greenadapt
from greenadapt.checkpoints.layout import SEEDS
from greenadapt.config import ReadingOptions, TaskConfig, TrainConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.progress import Silent
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.data import read_unlabelled
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.store.results import Result
from greenadapt.tasks.base import TaskData
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask
from greenadapt.training import self_training
from greenadapt.training.sampling import Purpose, random_bits
from greenadapt.training.self_training import confident_sentences
from tests.conftest import tiny_model_in
from tests.support.small_tasks import adapted, ner_request, sentences, session

TinyModel = Callable[..., Path]
TRAIN = TrainConfig(mix="both", epochs=5, batch_size=8, learning_rate=5e-3)


def prediction(*scores: float) -> dict[str, Any]:
    """A prediction of three words with as many entities as scores."""
    entities = [{"first": i, "last": i, "type": "Gene", "score": score} for i, score in enumerate(scores)]
    return {"tags": [*["B-Gene"] * len(scores), *["O"] * (3 - len(scores))], "entities": entities}


def test_sentences_of_which_the_model_is_sure_keep_the_share_with_entities() -> None:
    labelled = [Sentence(("a",), (tag,)) for tag in ("B-Gene", "O", "O")]
    texts = [Sentence((f"word{i}", "x", "y")) for i in range(300)]
    predictions = iter([prediction(*[(0.9,), (0.95, 0.79), ()][i % 3]) for i in range(300)])
    chosen = confident_sentences(labelled, texts, predictions)
    with_entity = [sentence for sentence in chosen if sentence.tags == ("B-Gene", "O", "O")]
    assert (len(chosen), len(with_entity)) == (30, 10)  # ten for a labelled one, a third with entities
    numbers = [int(sentence.words[0][4:]) for sentence in chosen]
    assert numbers == [*range(0, 30, 3), *range(2, 60, 3)]
    assert len([*predictions]) == 240  # no more sentences are labelled


def text_file(folder: Path, n: int = 120) -> str:
    file = folder / "text.txt"
    file.write_text("".join(" ".join(words) + "\n" for words in sentences(n, seed=3)), "utf-8")
    return str(file)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> tuple[FinetuneRequest, Result]:
    """A self-training and its result."""
    folder = tmp_path_factory.mktemp("taught")
    model = adapted(partial(tiny_model_in, folder))
    request = ner_request(folder, model, training=TRAIN, unlabelled=text_file(folder))
    return request, finetune(session(folder), request)


@pytest.mark.slow
def test_the_second_model_is_that_of_a_file_with_predicted_sentences(
    taught: tuple[FinetuneRequest, Result], tmp_path: Path
) -> None:
    """With the sentences that the first model, trained and asked by itself, is sure of."""
    request, result = taught
    first = finetune(session(tmp_path, "first"), replace(request, unlabelled=None))

    task = NerTask()
    labelled = task.read(request.tasks[0].train[0], Silent())
    data = data_of(task.fit(labelled, Silent()), labelled)
    texts = read_unlabelled(data, request.unlabelled or "", Silent())
    order = np.argsort(random_bits(len(texts), 0, Purpose.SELF_TRAINING), kind="stable")
    texts = [texts[i] for i in order]
    tagger = greenadapt.load(first.path, reading=ReadingOptions(margin=1.0))
    rows = tagger.predict([{"tokens": list(text.words)} for text in texts], tags=True)
    predicted = confident_sentences(labelled, texts, rows)
    file = tmp_path / "both.tsv"
    blocks = ["".join(f"{word}\t{tag}\n" for word, tag in zip(s.words, s.tags or (), strict=True))
              for s in [*labelled * 5, *predicted]]  # fmt: skip
    file.write_text("\n".join(blocks), "utf-8")
    n_steps = TRAIN.epochs * 2 * len(labelled) // TRAIN.batch_size
    plain = ner_request(tmp_path, Path(request.model), train=(str(file),), training=replace(TRAIN, max_steps=n_steps))
    expected = finetune(session(tmp_path, "plain"), plain)

    assert result.manifest.counts["unlabelled"] == len(predicted) > 0
    assert result.manifest.counts["train"] == 40
    weights = [load_file(path / "model.safetensors") for path in (result.path, expected.path, first.path)]
    assert all(weights[0][name].equal(weight) for name, weight in weights[1].items())
    assert not all(weights[0][name].equal(weight) for name, weight in weights[2].items())


@pytest.mark.slow
def test_a_killed_run_resumes(
    taught: tuple[FinetuneRequest, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, whole = taught

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patch.setattr(self_training, "_second", kill)
        finetune(session(tmp_path), request)
    result = finetune(session(tmp_path), request)
    weights = [load_file(path / "model.safetensors") for path in (whole.path, result.path)]
    assert all(weights[0][name].equal(weight) for name, weight in weights[1].items())
    assert not list((result.folder / SEEDS).glob("*/.first*"))
    assert not list((result.folder / SEEDS).glob("*/.self-labelled*"))


def data_of(task: NerTask, labelled: Sequence[Any]) -> Any:
    return TaskData("", task, None, labelled, {}, {}, None, "")  # type: ignore[arg-type]  (texts are only read)


GENES = data_of(NerTask(("O", "B-Gene", "I-Gene"), split="punctuation"), [None])


def test_sentences_are_drawn_at_random_the_same_ones_each_time(tmp_path: Path) -> None:
    file = tmp_path / "text.txt.gz"
    with gzip.open(file, "wt") as stream:
        stream.writelines(f"word{number} a b c d\n" for number in range(1000))
    read = read_unlabelled(GENES, str(file), Silent())
    numbers = [int(text.words[0][4:]) for text in read]
    assert len({*numbers}) == 40
    assert 300 < np.mean(numbers) < 700
    assert numbers != sorted(numbers)
    assert read == read_unlabelled(GENES, str(file), Silent())


def test_text_is_cut_into_sentences_and_tokens_are_not(tmp_path: Path) -> None:
    file = tmp_path / "text.jsonl"
    file.write_text(
        '{"text": "One two three four five. Too short. Six seven eight e.g. nine ten!"}\n'
        '{"tokens": ["A", "B.", "C", "D", "E"]}\n'
    )
    read = {text.words for text in read_unlabelled(GENES, str(file), Silent())}
    assert read == {
        ("One", "two", "three", "four", "five", "."),
        ("Six", "seven", "eight", "e", ".", "g", ".", "nine", "ten", "!"),
        ("A", "B.", "C", "D", "E"),
    }


def test_what_cannot_be_learned_from_is_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    base, text = str(model.parent / "base"), text_file(tmp_path, 1)
    with pytest.raises(UsageError, match="memory"):
        ner_request(tmp_path, model, unlabelled=text, memory=base)
    with pytest.raises(UsageError, match="for NER, this is qa"):
        FinetuneRequest.of_one(str(model), ("x",), task=TaskConfig(task="qa"), unlabelled=text)
    for content, fact in (("", "no sentence of 5 to 60 words"), ("the the the the the\n", "sure of")):
        (tmp_path / "text.txt").write_text(content)
        with pytest.raises(InputError, match=fact):
            finetune(session(tmp_path), ner_request(tmp_path, model, unlabelled=text))
    assert not (tmp_path / "run" / "model.safetensors").exists()
