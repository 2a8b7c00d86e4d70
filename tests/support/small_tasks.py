"""Small labelled files and expanded models on which fine-tuning takes a moment and learns something."""

import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.checkpoints.writer import write_expanded
from greenadapt.config import ExpandConfig, TaskConfig, TrainConfig
from greenadapt.progress import Bar
from greenadapt.stages.expand import write_adapted
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import OpenedBase, Session
from greenadapt.store.workspace import Workspace
from greenadapt.training.finetune import FinetuneRun
from greenadapt.training.loop import Step
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.rows import Expansion
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import WORDS, Notes

TinyModel = Callable[..., Path]
Json = dict[str, Any]
NEW = ["tachycardia", "coronavirus", "dtypes", "eigenvalues"]
VOCABULARY = [*dict.fromkeys(WORDS), *NEW]
KNOWN = ["".join(pair) for pair in product("abcdefgh", "rstuvwxyz")]
DISEASES = {"tachycardia", "coronavirus", "virus"}
FAMILIES = [
    *("Bert", "Roberta", "XLMRoberta", "Camembert", "DebertaV2", "Albert", "Ernie"),
    *("DistilBert", "Electra", "MPNet", "ModernBert", "NomicBert", "Gte"),
]
_LIKE_OTHERS = ("XLMRoberta", "Camembert", "Ernie", "Gte")
EVERY_FAMILY = [
    pytest.param(family, marks=pytest.mark.long) if family in _LIKE_OTHERS else family for family in FAMILIES
]
"""To be tested one by one: those whose layers are those of another one are left out of every day."""
HEADS = ("TokenClassification", "SequenceClassification", "QuestionAnswering")
TASK_MODELS = [(family, head) for family in FAMILIES for head in HEADS if hasattr(transformers, f"{family}For{head}")]
EVERY_HEAD = [
    pytest.param(family, head, marks=() if family in ("Bert", "ModernBert") or head == HEADS[1] else pytest.mark.long)
    for family, head in TASK_MODELS
]
"""The heads for texts differ by family; those for pieces are one linear layer in all but ModernBERT."""
TRAIN = TrainConfig(epochs=3, learning_rate=7e-3, batch_size=8)


class Signalling(Notes):
    """Sends a signal to this process when a step is reported."""

    def __init__(self, number: int, at: int) -> None:
        super().__init__()
        self.number, self.at = number, at

    @contextmanager
    def bar(self, label: str, total: int | None, unit: str) -> Iterator[Bar]:
        units = 0
        with super().bar(label, total, unit) as bar:

            class Counting:
                def advance(_, n: int = 1, **facts: Any) -> None:  # noqa: N805
                    nonlocal units
                    units += n
                    if units == self.at and unit == "steps":
                        signal.raise_signal(self.number)
                    bar.advance(n, **facts)

                def skip(_, n: int) -> None:  # noqa: N805
                    pass

            yield Counting()  # type: ignore[misc]


def expand(source: Path, target: Path) -> Path:
    """The model of ``source`` with a row of its own for each of ``NEW``."""
    dim = Checkpoint(source).dim
    matrix = np.random.default_rng(0).normal(size=(len(NEW), dim)).astype(np.float32)
    vectors = WordVectors(NEW, np.ones(len(NEW), np.int64), matrix)
    alignment = Alignment("identity", dim, dim, 2, 1, matrix=np.eye(dim, dtype=np.float32))
    base = OpenedBase(find_model(str(source)))
    write_adapted(Expansion(base.checkpoint, base.vocabulary, vectors, alignment, ExpandConfig(rows="map")), target)
    return target


def adapted(tiny_model: TinyModel, **config: Any) -> Path:
    """An expanded tiny model, beside the one it was made from."""
    base = tiny_model(name="base", initializer_range=0.1, **config)
    return expand(base, base.parent / "adapted")


def worded_model(tiny_model: TinyModel) -> Path:
    """A tiny model that has the words ``KNOWN``, too, and could also spell them."""
    folder = tiny_model(vocab_size=400, initializer_range=0.3, name="worded")
    file = folder / "tokenizer.json"
    content = read_json(file)
    vocabulary = content["model"]["vocab"]
    for word in KNOWN:
        vocabulary.setdefault(word, len(vocabulary))
    file.write_text(json.dumps(content), "utf-8")
    return folder


def known_text(n_lines: int = 200) -> str:
    """Lines of words that ``worded_model`` has, and of ``NEW`` ones."""
    draw = random.Random(1)
    return "".join(" ".join(draw.choices([*KNOWN, *NEW], k=12)) + "\n" for _ in range(n_lines))


def facts_file(model: Path) -> Json:
    """Write the facts about the base model of ``model`` that ``expand`` would write."""
    facts: Json = {"corpus": "medicine", "model": {"name": "tiny", "source": str(model.parent / "base")}}
    (model / "greenadapt.json").write_text(json.dumps(facts))
    return facts


def set_config(model: Path, **settings: object) -> None:
    """Change settings in ``config.json``."""
    file = model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def trained(folder: Path, seed: int = 1) -> Path:
    """The model of a folder after a small random change of every weight, as by training."""
    draw = torch.Generator().manual_seed(seed)
    weights = load_file(folder / "model.safetensors")
    moved = {name: w + 0.1 * torch.randn(w.shape, generator=draw).to(w.dtype) for name, w in weights.items()}
    save_file(moved, folder / "model.safetensors", {"format": "pt"})
    return folder


def expanded(tiny_model: TinyModel, tmp_path: Path, architecture: str, n: int = 300, **config: Any) -> Checkpoint:
    """A tiny model of any architecture with ``n`` random rows below its own, and no words for them."""
    source = Checkpoint(tiny_model(f"{architecture}Model", **config))
    rows = np.random.default_rng(0).normal(scale=0.1, size=(n, source.dim)).astype(np.float32)
    write_expanded(source, rows, tmp_path / "expanded")
    return Checkpoint(tmp_path / "expanded")


def sentences(n: int, seed: int) -> list[list[str]]:
    draw = np.random.default_rng(seed)
    return [draw.choice(VOCABULARY, draw.integers(3, 12)).tolist() for _ in range(n)]


def tags_of(words: list[str]) -> list[str]:
    """Diseases are entities, with the word "heart" or "patient" behind them; cells and proteins are genes."""
    tags: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if word in DISEASES:
            tags.append("B-Disease")
        elif word in ("heart", "patient") and before in DISEASES:
            tags.append("I-Disease")
        else:
            tags.append("B-Gene" if word in ("cell", "protein") else "O")
    return tags


def ner_file(path: Path, n: int = 40, seed: int = 0) -> Path:
    rows = [list(zip(words, tags_of(words), strict=True)) for words in sentences(n, seed)]
    path.write_text("\n".join("".join(f"{word}\t{tag}\n" for word, tag in row) for row in rows), "utf-8")
    return path


def texts_file(path: Path, n: int = 40, seed: int = 0, *, numbers: bool = False, pair: bool = False) -> Path:
    """JSON lines; the class is "ill" if the text has a disease, the number counts words with an a."""
    rows: list[Json] = []
    for words in sentences(n, seed):
        label: Any = "ill" if DISEASES & {*words} else "well"
        if numbers:
            label = sum("a" in word for word in words) / 2
        rows.append({"text": " ".join(words), "label": label})
        if pair:
            rows[-1]["second"] = " ".join(words[:2])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def question_lines(data: Path) -> Path:
    """The questions of SQuAD's JSON as JSON lines, which ``predict`` reads, beside it."""
    paragraphs = [paragraph for article in read_json(data)["data"] for paragraph in article["paragraphs"]]
    rows = [
        {"id": str(question["id"]), "question": question["question"], "context": paragraph["context"]}
        for paragraph in paragraphs
        for question in paragraph["qas"]
    ]
    path = data.with_suffix(".lines.jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def qa_file(path: Path, n: int = 20, seed: int = 0, *, impossible: bool = False) -> Path:
    """SQuAD's JSON with questions for a disease; with ``impossible``, every third question has no answer."""
    paragraphs = []
    for i, words in enumerate(sentences(n, seed)):
        words.insert(i % 3, "tachycardia")
        context = " ".join(words)
        answers = [{"text": "tachycardia", "answer_start": context.index("tachycardia")}]
        qa: Json = {"id": i, "question": "what heart", "answers": answers}
        if impossible:
            is_impossible = i % 3 == 0
            qa |= {"is_impossible": is_impossible, "answers": [] if is_impossible else answers}
        paragraphs.append({"context": context, "qas": [qa]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), "utf-8")
    return path


def session(tmp_path: Path, out: str = "run", **options: Any) -> Session:
    return Session(Workspace(tmp_path / "ws"), Notes(), out=tmp_path / out, **options)


def ner_request(tmp_path: Path, model: Path, **changes: Any) -> FinetuneRequest:
    """NER on ``train.tsv``, ``dev.tsv`` and ``test.tsv``, which are written if they are missing."""
    files = {name: tmp_path / f"{name}.tsv" for name in ("train", "dev", "test")}
    for seed, file in enumerate(files.values()):
        if not file.exists():
            ner_file(file, 40 if seed == 0 else 15, seed)
    settings: Json = {
        "model": str(model),
        "train": (str(files["train"]),),
        "test": str(files["test"]),
        "task": TaskConfig(max_length=64),
        "training": TRAIN,
    }
    return FinetuneRequest.of_one(**{**settings, **changes})


def texts_request(folder: Path, model: Path, seeds: tuple[int, ...]) -> FinetuneRequest:
    """Classification of texts that are written into ``folder``; the logits of the test set are saved."""
    texts_file(folder / "train.jsonl", 40, 0)
    texts_file(folder / "test.jsonl", 15, 2)
    return ner_request(
        folder,
        model,
        train=(str(folder / "train.jsonl"),),
        test=str(folder / "test.jsonl"),
        task=TaskConfig("classification", max_length=64),
        training=TrainConfig(epochs=1, learning_rate=3e-3, batch_size=8),
        seeds=seeds,
        save_logits=True,
    )


def lines(path: Path) -> list[Json]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def watch_steps(run: FinetuneRun) -> list[Step]:
    """The steps that a run makes from now on."""
    steps: list[Step] = []
    train_steps = run.training.train_steps

    def watched() -> Iterator[Step]:
        for step in train_steps():
            steps.append(step)
            yield step

    setattr(run.training, "train_steps", watched)  # noqa: B010  (mypy refuses to assign to a method)
    return steps
