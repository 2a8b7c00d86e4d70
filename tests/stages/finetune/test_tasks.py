"""The tasks of a folder: listed, and taken away without a trace of the others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from greenadapt.config import AdapterConfig
from greenadapt.errors import ConflictError, MissingError, UsageError
from greenadapt.models.adapters.kinds import make_adapter
from greenadapt.stages.finetune.add_task import add_tasks
from greenadapt.stages.finetune.tasks import METHODS, count_params, list_tasks, remove_task
from greenadapt.stages.finetune.train import finetune, read_scores
from greenadapt.storage.results import verified
from tests.conftest import Notes, Run
from tests.support.small_multitask import files_of, request, said
from tests.support.small_tasks import TinyModel, adapted, read_json, session


@pytest.mark.slow
def test_a_task_is_removed_and_the_others_stay(tiny_model: TinyModel, tmp_path: Path) -> None:
    wanted = request(tmp_path, adapted(tiny_model), seeds=(0, 1))
    own = session(tmp_path, "many")
    folder = finetune(own, wanted).folder
    add_tasks(own, folder, request(tmp_path, folder, ("number",)))
    before = files_of(folder)
    answers = {(name, seed): said(folder, name, seed) for name, seed in (("ill.1", 0), ("ill.1", 1), ("number", 0))}
    remove_task(folder, "ner")
    after = files_of(folder)
    assert {name for name in before if name not in after} == {name for name in before if "tasks/ner/" in name}
    assert [name for name in after if after[name] != before.get(name)] == ["manifest.json"]
    assert {(name, seed): said(folder, name, seed) for name, seed in answers} == answers
    with pytest.raises(MissingError, match=r"has no task 'ner': it has ill\.1, number"):
        remove_task(folder, "ner")
    again = finetune(own, wanted)
    assert not verified(again).fresh
    notes = own.progress
    assert isinstance(notes, Notes)
    assert notes.warnings[-1].endswith("many had ner, too, until removed: train it again with --force")
    assert files_of(folder) == after
    scores = read_scores(again)
    assert [*scores["tasks"]] == ["ill.1"]
    assert scores["average"]["test"] == scores["tasks"]["ill.1"]["test"]["test"]
    assert [seed["average"]["test"] for seed in scores["seeds"]] == [
        seed["tasks"]["ill.1"]["test"]["test"][scores["metrics"]["ill.1"]] for seed in scores["seeds"]
    ]
    remove_task(folder, "number")
    assert {name: digest for name, digest in after.items() if "number" not in name} == files_of(folder)
    add_tasks(own, folder, request(tmp_path, folder, ("ner",)))
    assert [(one.name, one.is_added) for one in list_tasks(folder)] == [("ner", True), ("ill.1", False)]
    remove_task(folder, "ner")
    assert finetune(replace(own, force=True), wanted).fresh
    assert len(list_tasks(folder)) == 2


def test_the_last_task_stays(two_tasks: Path) -> None:
    remove_task(two_tasks, "ner")
    before = files_of(two_tasks)
    with pytest.raises(ConflictError, match=r"ill\.1 is the only task of .*many: delete the folder"):
        remove_task(two_tasks, "ill.1")
    assert files_of(two_tasks) == before


def test_a_killed_removal_is_ended_by_the_next(two_tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before = said(two_tasks, "ill.1")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_task(two_tasks, "ner")
    assert [one.name for one in list_tasks(two_tasks)] == ["ill.1"]
    assert said(two_tasks, "ill.1") == before
    assert list(two_tasks.rglob(".*"))
    wanted = request(two_tasks.parent, two_tasks.parent / "adapted")
    assert not finetune(session(two_tasks.parent, "many"), wanted).fresh
    assert not list(two_tasks.rglob(".*"))
    assert said(two_tasks, "ill.1") == before


def test_what_is_listed(two_tasks: Path, tiny_model: TinyModel) -> None:
    ner, ill = list_tasks(two_tasks)
    assert (ner.name, ner.kind, ner.adapter, ner.metric, ner.is_added) == ("ner", "ner", "pals", "f1", False)
    assert (ill.name, ill.kind) == ("ill.1", "classification")
    for one in (ner, ill):
        file = two_tasks / "tasks" / one.name / "weights.safetensors"
        assert one.bytes == file.stat().st_size
        assert one.weights == sum(array.size for array in load_file(file).values())
        assert one.scores == read_json(two_tasks / "scores.json")["tasks"][one.name]
    other = tiny_model()
    for use in (lambda: list_tasks(other), lambda: remove_task(other, "ner")):
        with pytest.raises(UsageError, match="has no tasks that share an encoder: give the folder that finetune --tas"):
            use()


def test_a_file_that_somebody_put_into_a_task_stays(two_tasks: Path) -> None:
    (two_tasks / "tasks" / "ner" / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"tasks/ner/notes.txt is a file that greenadapt did not write"):
        remove_task(two_tasks, "ner")
    assert (two_tasks / "tasks" / "ner" / "notes.txt").read_text() == "mine"
    assert sorted(task.name for task in list_tasks(two_tasks)) == ["ill.1", "ner"]


Json = dict[str, Any]

# adapter, layers: width, heads, weights of a task, of eight tasks, ratio (arXiv 1902.02671, and its code for the last
# two), as far as it can be recomputed; ratios there are to a base of 110 million and without biases.
PAPER = {
    ("none", "all"): (None, None, 0, 0, 1.00),
    ("pals", "all"): (204, 12, 1_811_520, 14_492_160, 1.132),
    ("low-rank", "all"): (100, None, 1_843_200, 14_745_600, 1.134),
    ("pals", "top"): (276, 12, 1_795_104, 14_360_832, 1.131),
    ("pals", "bottom"): (276, 12, 1_795_104, 14_360_832, 1.131),
    ("attention", "all"): (84, 4, 1_802_304, 14_418_432, 1.131),
    ("ffn", "all"): (204, None, 1_811_520, 14_492_160, 1.132),
    ("top-attention", "all"): (204, 12, 1_312_128, 10_497_024, 1.095),
    ("top-ffn", "all"): (204, None, 1_312_128, 10_497_024, 1.095),
    ("top-ffn-2", "all"): (204, None, 1_311_264, 10_490_112, 1.095),
    ("bert-layer", "all"): (None, None, 7_077_888, 56_623_104, 1.515),
    ("lhuc", "all"): (None, None, 9_216, 73_728, 1.0007),
    ("houlsby", "all"): (50, None, 1_843_200, 14_745_600, 1.134),
    ("houlsby-pals", "all"): (156, 6, 2_037_312, 16_298_496, 1.148),
}


def test_the_table_is_the_papers() -> None:
    rows = count_params(None, METHODS, 8)
    assert {(config.adapter, config.layers) for config in METHODS} == set(PAPER)
    for config, row in zip(METHODS, rows, strict=True):
        width, heads, weights, of_all, ratio = PAPER[config.adapter, config.layers]
        found = [row[name] for name in ("size", "heads", "weights", "all_weights")]
        assert found == [width, heads, weights, of_all]
        digits = 4 if config.adapter == "lhuc" else 3
        assert round(1 + row["all_weights"] / 110e6, digits) == ratio
        assert row["base_parameters"] == 109_482_240
        assert row["ratio"] == pytest.approx(1 + 8 * row["parameters"] / 109_482_240)
        assert row["all_parameters"] == 8 * row["parameters"]


def test_what_the_paper_tried_besides_is_of_its_formulas() -> None:
    """d_m = 768, T = 8 tasks: layers on top T(2 d_m d_s + n 4 d_s²), two hidden layers of 252 instead of one of 408, a
    pooler of d_m² for each task, and encoder and decoder matrices for all tasks once.
    """
    d, tasks = 768, 8
    expected = {
        AdapterConfig("top-attention", top_layers=3): tasks * (2 * d * 204 + 3 * 4 * 204**2),
        AdapterConfig("top-attention", top_layers=12): tasks * (2 * d * 204 + 12 * 4 * 204**2),
        AdapterConfig("top-ffn"): tasks * (2 * d * 204 + 6 * 2 * 204 * 408),
        AdapterConfig("top-ffn-2"): tasks * (2 * d * 204 + 6 * (2 * 204 * 252 + 252**2)),
        AdapterConfig("pals", 168, own_pooler=True): tasks * (2 * d * 168 + 12 * 3 * 168**2 + d**2),
        AdapterConfig("none", own_pooler=True): tasks * d**2,
        AdapterConfig("pals", 216, share_projections=True): 2 * d * 216 + tasks * 12 * 3 * 216**2,
        AdapterConfig("attention", 192, share_projections=True): 12 * 2 * d * 192 + tasks * 12 * 3 * 192**2,
    }
    rows = count_params(None, list(expected), tasks)
    assert [row["all_weights"] for row in rows] == list(expected.values())
    by_biases = {  # those of V^E and V^D are shared, too
        "pooler": tasks * (d**2 + d),
        "shared": 2 * d * 216 + 216 + d + tasks * 12 * 3 * (216**2 + 216),
    }
    assert rows[5]["all_parameters"] == by_biases["pooler"]
    assert rows[6]["all_parameters"] == by_biases["shared"]
    budget = 15_000_000  # "15 million total, or 1.9 million parameters per task"
    assert all(row["all_weights"] < budget for row in rows[4:])


def test_biases_are_counted_too() -> None:
    pals, half = count_params(None, [AdapterConfig("pals"), AdapterConfig("pals", layers="top")], 8)
    assert pals["parameters"] == 1_819_836
    assert round(pals["ratio"], 4) == 1.1330
    assert pals["layers"] == list(range(1, 13))
    assert half["layers"] == list(range(7, 13))
    serial, lhuc = count_params(None, [AdapterConfig(placement="serial"), AdapterConfig("lhuc")], 1)
    assert serial["parameters"] == 1_819_836 + 12 * 2 * 768  # a layer norm a layer
    assert serial["weights"] == 1_811_520
    assert lhuc["weights"] == lhuc["parameters"] == 9_216


def test_small_budgets_of_the_paper() -> None:
    low_rank, pals = count_params(None, [AdapterConfig("low-rank", 10), AdapterConfig("pals", 54)], 8)
    assert (low_rank["all_weights"], pals["all_weights"]) == (1_474_560, 1_503_360)


def test_counts_are_those_of_real_modules(tiny_model: Any) -> None:
    import transformers

    folder = tiny_model("RobertaModel", width=24)
    encoder = transformers.AutoModel.from_pretrained(folder)
    for config, row in zip(METHODS, count_params(str(folder), METHODS, 3), strict=True):
        adapter = make_adapter(config, encoder)
        assert row["parameters"] == sum(weight.numel() for weight in adapter.state_dict().values())
        matrices = [weight.numel() for name, weight in adapter.named_parameters() if weight.ndim == 2]
        assert row["weights"] == sum(matrices) or config.adapter == "lhuc"
        assert row["base_parameters"] == sum(weight.numel() for weight in encoder.parameters())
    assert torch.get_default_device().type == "cpu"


def test_no_weights_are_read(tiny_model: Any, run_alone: Run) -> None:
    folder = tiny_model("BertModel")
    for file in folder.iterdir():
        if file.name != "config.json":
            file.unlink()
    row = json.loads(run_alone("params", "--model", folder, "--adapter", "lhuc", "--tasks", 2, "--json").stdout)
    assert (row["weights"], row["all_weights"], row["tasks"]) == (64, 128, 2)


def test_the_table_is_shown(run_alone: Run) -> None:
    shown = run_alone("params").stdout
    lines = [line.split() for line in shown.splitlines()]
    assert "BERT-base: 109,482,240 weights, shared by 8" in shown
    row = ["pals", "204", "12", "1-12", "1,811,520", "14,492,160", "1,819,836", "14,558,688", "1.1330"]
    assert row in lines
    assert [line[3] for line in lines if line[:1] == ["pals"]] == ["1-12", "7-12", "1-6"]
    detailed = run_alone(
        "params", "--adapter", "pals", "--adapter-size", 30, "--adapter-heads", 5, "--layers", "1,3", "--tasks", 1
    ).stdout
    assert ["pals", "30", "5", "1,3"] in [line.split()[:4] for line in detailed.splitlines()]


def test_the_released_codes_form(run_alone: Run) -> None:
    row = json.loads(run_alone("params", "--adapter", "pals", "--adapter-form", "reference", "--json").stdout)
    assert (row["size"], row["heads"], row["form"], row["weights"]) == (204, 6, "reference", 1_811_520)
    row = json.loads(run_alone("params", "--adapter", "low-rank", "--placement", "serial", "--json").stdout)
    assert row["placement"] == "serial"


def test_of_a_hub_id_the_configuration_alone_is_fetched(
    tmp_path: Path, run_alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    fetched = []
    folder = config_with(tmp_path / "fetched", hidden_size=48, num_attention_heads=4)

    def fetch(repo: str, file: str) -> str:
        fetched.append((repo, file))
        if repo == "org/none":
            raise LocalEntryNotFoundError("no connection")
        return str(folder / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    row = json.loads(run_alone("params", "--model", "org/some", "--adapter", "lhuc", "--json").stdout)
    assert row["weights"] == 12 * 48
    assert fetched == [("org/some", "config.json")]
    error = run_alone("params", "--model", "org/none", code=1).stderr
    assert "no config.json of it could be fetched (no connection)" in error


def config_with(folder: Path, **settings: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **settings}), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "albert"}, "a model of type albert cannot be shared by tasks"),
        ({"hidden_size": 100}, "does not describe a model: The hidden size (100)"),
        ({"hidden_size": "wide"}, "does not describe a model"),
        ({"hidden_act": "no such"}, "does not describe a model"),
        ({"num_hidden_layers": 0}, "describes a model of 0 layers"),
    ],
)
def test_broken_configurations_are_refused(settings: Json, message: str, tmp_path: Path, run_alone: Run) -> None:
    code = 2 if "model_type" in settings else 1
    result = run_alone("params", "--model", config_with(tmp_path / "model", **settings), code=code)
    assert message in result.stderr


def test_bad_input_is_refused_in_words(tmp_path: Path, run_alone: Run) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty has no config.json" in run_alone("params", "--model", tmp_path / "empty", code=1).stderr
    for text in ("{", "[]"):
        (tmp_path / "empty" / "config.json").write_text(text)
        assert "config.json" in run_alone("params", "--model", tmp_path / "empty", code=1).stderr
    assert "no model folder ./none" in run_alone("params", "--model", "./none", code=1).stderr
    assert "--tasks is 0" in run_alone("params", "--tasks", 0, code=2).stderr
    for option in (("--adapter-size", 8), ("--adapter-heads", 2), ("--layers", "top"), ("--placement", "serial")):
        assert f"{option[0]} needs an adapter to belong to" in run_alone("params", *option, code=2).stderr
    assert "--adapter-form needs an adapter" in run_alone("params", "--adapter-form", "reference", code=2).stderr
    wrong = run_alone("params", "--adapter", "pals", "--adapter-size", 200, "--adapter-heads", 7, code=2).stderr
    assert "--adapter-size 200 is not a multiple of --adapter-heads 7" in wrong
    wrong = run_alone("params", "--adapter", "pals", "--layers", "13", code=2).stderr
    assert "--layers has layer 13, the model has 12" in wrong
