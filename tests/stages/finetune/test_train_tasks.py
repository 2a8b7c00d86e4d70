"""Many tasks on one encoder, from files to a folder: trained together, scored, and refused."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import transformers
from sklearn.metrics import f1_score

from greenadapt.errors import ConflictError
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.train import read_scores
from greenadapt.store.results import verified
from tests.support.small_multitask import CONFIGS, request, said, same, task_file
from tests.support.small_tasks import TinyModel, adapted, expand, lines, read_json, session

Json = dict[str, Any]
NAMES = tuple(CONFIGS)


@pytest.mark.slow
def test_all_kinds_of_tasks(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    of_all_kinds = request(tmp_path, model, NAMES, seeds=(4, 9))
    dev = {"a": str(task_file(tmp_path, "ill.1", "dev")), "b": str(task_file(tmp_path, "ill.1", "test"))}
    chosen = replace(of_all_kinds.tasks[1], dev=dev, metric="by_class.ill.f1")
    of_all_kinds = replace(of_all_kinds, tasks=(of_all_kinds.tasks[0], chosen, *of_all_kinds.tasks[2:]))
    in_folder = session(tmp_path, "many")
    result = finetune(in_folder, of_all_kinds)
    folder, scores = verified(result).folder, read_scores(result.folder)
    assert not list(folder.rglob(".*"))
    for name in NAMES:
        for seed in (4, 9):
            written = folder / "seeds" / str(seed) / "tasks" / name / "predictions-test.jsonl"
            assert same(folder, name, seed, written)
    _check_scores(folder, scores)
    assert scores["metrics"] == {"ner": "f1", "ill.1": "by_class.ill.f1", "number": "pearson", "qa": "f1"}
    assert set(scores["tasks"]["ill.1"]["dev"]) == {"a", "b"}
    plain = transformers.AutoModel.from_pretrained(folder)
    assert plain.config.architectures == ["BertModel"]
    assert result.manifest.counts["train"] == 4 * 24
    assert not finetune(in_folder, of_all_kinds).fresh
    with pytest.raises(ConflictError, match=r"another result \(learning_rate: 0.007 → 0.001\)"):
        finetune(in_folder, replace(of_all_kinds, training=replace(of_all_kinds.training, learning_rate=1e-3)))


def _check_scores(two_tasks: Path, scores: Json) -> None:
    """Against what the seeds' files say, and one score against scikit-learn's."""
    of_seeds = {seed: read_json(two_tasks / "seeds" / str(seed) / "scores.json")["tasks"] for seed in (4, 9)}
    gold = [row["label"] == "ill" for row in lines(task_file(two_tasks.parent, "ill.1", "test"))]
    columns = []
    for seed, tasks in of_seeds.items():
        rows = lines(two_tasks / "seeds" / str(seed) / "tasks" / "ill.1" / "predictions-test.jsonl")
        f1 = tasks["ill.1"]["test"]["test"]["by_class"]["ill"]["f1"]
        assert f1 == pytest.approx(f1_score(gold, [row["label"] == "ill" for row in rows]))
        values = [tasks["ner"]["test"]["test"]["f1"], f1, tasks["number"]["test"]["test"]["pearson"]]
        columns.append([*values, tasks["qa"]["test"]["test"]["f1"]])
    values = [fmean(0.0 if value is None else value for value in row) for row in columns]
    assert scores["average"]["test"] == pytest.approx({"mean": fmean(values), "std": stdev(values)})
    f1s = [row[1] for row in columns]
    assert scores["tasks"]["ill.1"]["test"]["test"] == pytest.approx({"mean": fmean(f1s), "std": stdev(f1s)})
    assert [seed["seed"] for seed in scores["seeds"]] == [4, 9]


@pytest.mark.slow
def test_an_expanded_model_keeps_its_tasks(tiny_model: TinyModel, tmp_path: Path) -> None:
    base = tiny_model(name="base", initializer_range=0.1)
    folder = finetune(session(tmp_path, "many"), request(tmp_path, base)).folder
    grown = expand(folder, tmp_path / "grown")
    for name in ("ner", "ill.1"):
        assert said(grown, name, pool="base") == said(folder, name, pool="base")
        assert said(grown, name, pool="expanded") != said(folder, name, pool="base")
