"""Models fine-tuned alike: the difference is that of their scores, and what is done is not done again."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from greenadapt.checkpoints.layout import FACTS_FILE, TASK_FILE
from greenadapt.checkpoints.source import find_model
from greenadapt.config import TaskConfig
from greenadapt.errors import MissingError, UsageError
from greenadapt.progress import Bar, Silent
from greenadapt.stages.finetune.compare import compare, statistics_of
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import read_scores
from greenadapt.stages.report import task_groups
from greenadapt.storage.files import write_json
from greenadapt.tasks.base import load_task
from greenadapt.tasks.metrics import interval, paired, summed
from tests.support.small_tasks import (
    TRAIN,
    TinyModel,
    adapted,
    expand,
    ner_request,
    qa_file,
    read_json,
    session,
    texts_file,
)

QUICK = replace(TRAIN, epochs=2)


class Bars(Silent):
    """Remembers what bars are called."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        self.labels.append(label)
        with super().bar(label, total, unit) as bar:
            yield bar


@pytest.mark.slow
def test_three_models(tiny_model: TinyModel, tmp_path: Path) -> None:
    ours = adapted(tiny_model)
    base, reference = str(ours.parent / "base"), str(tiny_model(name="reference", initializer_range=0.05))
    request = ner_request(tmp_path, ours, seeds=(0, 1))
    bars = Bars()
    compared = compare(replace(session(tmp_path), progress=bars), request, [base, reference])
    first, second, third = compared.rows
    for row in compared.rows:  # each seed is announced with its model
        own = [label for label in bars.labels if label.startswith(f"{row['model']}, seed ")]
        assert {label.removeprefix(f"{row['model']}, ").split(",")[0] for label in own} == {"seed 0", "seed 1"}
    assert not [label for label in bars.labels if label.startswith("seed ")]
    assert [result.fresh for result in compared.results] == [True] * 3
    assert len({result.path for result in compared.results}) == 3
    scores = [read_scores(result) for result in compared.results]
    for row, score, result in zip(compared.rows, scores, compared.results, strict=True):
        assert row["score"] == pytest.approx(score["mean"]["f1"])
        assert row["std"] == pytest.approx(score["std"]["f1"])
        assert row["folder"] == str(result.path)
    assert len({row["score"] for row in compared.rows}) == 3
    for row, score in zip((second, third), scores[1:], strict=True):
        assert row["difference"] == pytest.approx(scores[0]["mean"]["f1"] - score["mean"]["f1"])
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["low"] < row["high"]
        assert 0 <= row["share_positive"] <= 1
    gap = third["score"] - second["score"]
    assert first["gap_covered"] == (pytest.approx((first["score"] - second["score"]) / gap) if gap > 0 else None)
    # The seeds and settings are the same, and so is what is read, but for the words that the base model lacks.
    configs = [result.manifest.config for result in compared.results]
    assert configs[0] == configs[1] == configs[2]
    again = compare(session(tmp_path), request, [base, reference])
    assert [result.fresh for result in again.results] == [False] * 3
    assert again.rows == compared.rows


@pytest.mark.slow
def test_a_model_with_itself(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny_model()
    request = ner_request(tmp_path, model, training=QUICK)
    for here in (session(tmp_path), replace(session(tmp_path), out=None)):
        row = compare(here, request, [str(model)]).rows[1]
        assert (row["difference"], row["low"], row["high"], row["share_positive"]) == (0, 0, 0, 0)
    assert [path.name for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")] == [
        f"ner-{find_model(str(model)).name}-{tmp_path.name}"
    ]


@pytest.mark.slow
def test_two_models_of_one_name_do_not_replace_each_other(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adapted to one corpus in two ways, they are called alike."""
    monkeypatch.chdir(tmp_path)
    one = adapted(tiny_model)
    other = expand(tiny_model(name="other"), tmp_path / "adapted2")
    for folder in (one, other):
        (folder / FACTS_FILE).write_text('{"model": {"name": "bert", "source": "bert"}, "corpus": "covid"}')
    compared = compare(replace(session(tmp_path), out=None), ner_request(tmp_path, one, training=QUICK), [str(other)])
    ours, theirs = compared.results
    assert [row["model"] for row in compared.rows] == ["bert-covid"] * 2
    data = tmp_path.name  # the folder of train.tsv
    assert ours.path == Path.cwd() / "runs" / f"ner-bert-covid-{data}"
    assert theirs.path.parent == ours.path.parent
    assert theirs.path.name.startswith(f"ner-bert-covid-{data}-adapted2-")
    assert ours.manifest.inputs["model"]["source"] == str(one)
    assert theirs.manifest.inputs["model"]["source"] == str(other)


@pytest.mark.slow
def test_contexts_of_questions_are_resampled_here_and_in_a_report(tiny_model: TinyModel, tmp_path: Path) -> None:
    train, test = qa_file(tmp_path / "train.json", 16), qa_file(tmp_path / "test.json", 12, seed=1)
    content = read_json(test)
    for i, paragraph in enumerate(content["data"][0]["paragraphs"]):
        (one,) = paragraph["qas"]
        paragraph["qas"] = [one | {"id": f"{i} {n}", "question": f"what heart {'what ' * n}"} for n in range(4)]
    write_json(test, content)
    model = adapted(tiny_model)
    task = TaskConfig("qa", max_length=64)
    request = FinetuneRequest.of_one(str(model), (str(train),), None, str(test), task, replace(TRAIN, epochs=1))
    compared = compare(session(tmp_path), request, [str(model.parent / "base")])
    loaded = load_task(read_json(compared.results[0].folder / TASK_FILE))
    examples = loaded.read(str(test), Silent())
    ours, theirs = (statistics_of(loaded, examples, result, request.seeds) for result in compared.results)
    contexts = [example.context for example in examples]
    assert len(set(contexts)) == 12
    expected = paired(summed(ours, contexts), summed(theirs, contexts), loaded.main_score)
    assert expected != paired(ours, theirs, loaded.main_score)
    row = compared.rows[1]
    assert row["resampled"] == "contexts"
    assert (row["low"], row["high"]) == (expected.low, expected.high)
    names = {result.folder: str(number) for number, result in enumerate(compared.results)}
    (group,) = task_groups(compared.results, names)
    base, better = group.models
    assert better.difference == (expected.difference, expected.low, expected.high)
    found = interval(summed(theirs, contexts), loaded.main_score)
    assert (base.low, base.high) == (found.low, found.high)


@pytest.mark.slow
def test_a_correlation_that_is_not_defined_counts_as_none(tiny_model: TinyModel, tmp_path: Path) -> None:
    train = texts_file(tmp_path / "train.jsonl", numbers=True)
    test = tmp_path / "test.jsonl"
    test.write_text('{"text": "a", "label": 1.5}\n{"text": "the virus", "label": 1.5}\n')
    model = adapted(tiny_model)
    task = TaskConfig("classification", max_length=64)
    request = FinetuneRequest.of_one(str(model), (str(train),), None, str(test), task, QUICK)
    compared = compare(session(tmp_path), request, [str(model.parent / "base")])
    assert read_scores(compared.results[0])["seeds"][0]["test"]["pearson"] is None
    assert [row["score"] for row in compared.rows] == [0, 0]
    assert compared.rows[1]["difference"] == 0


def test_what_is_refused_before_anything_is_trained(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model()
    with pytest.raises(UsageError, match="nothing to compare on"):
        compare(session(tmp_path), ner_request(tmp_path, model, test=None), [str(model)])
    with pytest.raises(MissingError, match="no model folder"):
        compare(session(tmp_path), ner_request(tmp_path, model), [str(model), str(tmp_path / "no model")])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_one_model_alone_has_nothing_to_compare(tiny_model: TinyModel, tmp_path: Path) -> None:
    compared = compare(session(tmp_path), ner_request(tmp_path, tiny_model(), training=QUICK), [])
    assert compared.rows == []
    assert np.isfinite(read_scores(compared.results[0])["mean"]["f1"])


@pytest.mark.slow
def test_it_is_imported_without_torch(tmp_path: Path) -> None:
    """Where torch is not installed, fine-tuning says so in a line."""
    code = "import sys, greenadapt.stages.finetune.compare; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
