"""Many tasks on one encoder, from files to a folder: trained together, scored, and refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from greenadapt.checkpoints.layout import SCORES, read_described
from greenadapt.stages.finetune.compare import finetune
from greenadapt.store.results import verify_result
from tests.support.small_multitask import CONFIGS, request, same, task_file
from tests.support.small_tasks import TinyModel, adapted, session

Json = dict[str, Any]
NAMES = tuple(CONFIGS)


@pytest.mark.slow
def test_all_kinds_of_tasks(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    of_all_kinds = request(tmp_path, model, NAMES, seeds=(4, 9))
    dev = {"a": str(task_file(tmp_path, "ill.1", "dev")), "b": str(task_file(tmp_path, "ill.1", "test"))}
    chosen = replace(of_all_kinds.tasks[1], dev=dev, metric="by_class.ill.f1")
    of_all_kinds = replace(
        of_all_kinds,
        tasks=(of_all_kinds.tasks[0], chosen, *of_all_kinds.tasks[2:]),
        training=replace(of_all_kinds.training, word_vectors=True),
    )
    in_folder = session(tmp_path, "many")
    result = finetune(in_folder, of_all_kinds)
    folder, scores = verify_result(result).folder, read_described(result.folder / SCORES)
    assert not list(folder.rglob(".*"))
    for name in NAMES:
        for seed in (4, 9):
            written = folder / "seeds" / str(seed) / "tasks" / name / "predictions-test.jsonl"
            assert same(folder, name, seed, written)
    assert scores["metrics"] == {"ner": "f1", "ill.1": "by_class.ill.f1", "number": "pearson", "qa": "f1"}
    assert set(scores["tasks"]["ill.1"]["dev"]) == {"a", "b"}
    plain = transformers.AutoModel.from_pretrained(folder)
    assert plain.config.architectures == ["BertModel"]
    assert result.manifest.counts["train"] == 4 * 24
    assert not finetune(in_folder, of_all_kinds).fresh
