"""Many tasks on one encoder, from files to a folder: trained, scored, added to and taken away from."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import transformers
from sklearn.metrics import f1_score

from greenadapt.config import AdapterConfig, MemoryConfig, TrainConfig
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError
from greenadapt.pipeline.finetune import finetune, read_scores
from greenadapt.pipeline.multitask import add_tasks, train_tasks
from greenadapt.pipeline.task_folder import TaskFolder
from greenadapt.pipeline.task_list import list_tasks, remove_task
from greenadapt.pipeline.task_models import OpenedModel, ReadingOptions
from greenadapt.store import hash_file, verified
from tests.conftest import Notes
from tests.processes import digests
from tests.small_multitask import CONFIGS, entry, request, task_file
from tests.small_tasks import TinyModel, adapted, expand, facts_file, lines, ner_request, read_json, session

Json = dict[str, Any]
NAMES = tuple(CONFIGS)
TEXTS = ["the virus was isolated from a patient", "heart rate with tachycardia", "a cell"]


def files_of(folder: Path) -> dict[str, str]:
    """All files, those that tell the time, too."""
    return {str(path.relative_to(folder)): hash_file(path) for path in folder.rglob("*") if path.is_file()}


def said(folder: Path, name: str, seed: int | None = None, **options: Any) -> list[Any]:
    """What a task's model says about ``TEXTS``."""
    model = OpenedModel.open(TaskFolder.open(str(folder), seed, name), ReadingOptions(**options))
    kind, record = model.task.name, {"question": "what heart"}
    examples = [model.task.example({**record, "context": text} if kind == "qa" else text, "here") for text in TEXTS]
    return [logits.tolist() for logits in model.logits(examples)]


def predicted(folder: Path, name: str, seed: int | None = None) -> list[Json]:
    """What a task's model says about its test file."""
    model = OpenedModel.open(TaskFolder.open(str(folder), seed, name), ReadingOptions())
    source = task_file(folder.parent, name, "test")
    examples = model.task.read(str(source), Notes())
    return [model.task.decode(*each) for each in zip(examples, model.logits(examples), strict=True)]


def same(folder: Path, name: str, seed: int | None, written: Path) -> bool:
    """Whether a task's model predicts what was written when it was trained."""
    found = json.loads(json.dumps(predicted(folder, name, seed)))
    return bool(found == [{key: row[key] for key in one} for row, one in zip(lines(written), found, strict=True)])


@pytest.fixture
def folder(tiny_model: TinyModel, tmp_path: Path) -> Path:
    """Two tasks on an expanded encoder."""
    return train_tasks(session(tmp_path, "many"), request(tmp_path, adapted(tiny_model))).folder


def test_all_kinds_of_tasks(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    wanted = request(tmp_path, model, NAMES, seeds=(4, 9))
    dev = {"a": str(task_file(tmp_path, "ill.1", "dev")), "b": str(task_file(tmp_path, "ill.1", "test"))}
    chosen = replace(wanted.tasks[1], dev=dev, metric="by_class.ill.f1")
    wanted = replace(wanted, tasks=(wanted.tasks[0], chosen, *wanted.tasks[2:]))
    own = session(tmp_path, "many")
    result = train_tasks(own, wanted)
    folder, scores = verified(result).folder, read_scores(result)
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
    assert not train_tasks(own, wanted).fresh
    with pytest.raises(ConflictError, match=r"another configuration \(learning_rate: 0.007 → 0.001\)"):
        train_tasks(own, replace(wanted, training=replace(wanted.training, learning_rate=1e-3)))


def _check_scores(folder: Path, scores: Json) -> None:
    """Against what the seeds' files say, and one score against scikit-learn's."""
    each = {seed: read_json(folder / "seeds" / str(seed) / "scores.json")["tasks"] for seed in (4, 9)}
    gold = [row["label"] == "ill" for row in lines(task_file(folder.parent, "ill.1", "test"))]
    columns = []
    for seed, tasks in each.items():
        rows = lines(folder / "seeds" / str(seed) / "tasks" / "ill.1" / "predictions-test.jsonl")
        f1 = tasks["ill.1"]["test"]["test"]["by_class"]["ill"]["f1"]
        assert f1 == pytest.approx(f1_score(gold, [row["label"] == "ill" for row in rows]))
        values = [tasks["ner"]["test"]["test"]["f1"], f1, tasks["number"]["test"]["test"]["pearson"]]
        columns.append([*values, tasks["qa"]["test"]["test"]["f1"]])
    values = [fmean(0.0 if value is None else value for value in row) for row in columns]
    assert scores["average"]["test"] == pytest.approx({"mean": fmean(values), "std": stdev(values)})
    f1s = [row[1] for row in columns]
    assert scores["tasks"]["ill.1"]["test"]["test"] == pytest.approx({"mean": fmean(f1s), "std": stdev(f1s)})
    assert [seed["seed"] for seed in scores["seeds"]] == [4, 9]


def test_a_task_is_added_and_the_others_stay(folder: Path, tmp_path: Path) -> None:
    own, before = session(tmp_path, "many"), files_of(folder)
    answers = {name: said(folder, name) for name in ("ner", "ill.1")}
    adapter = AdapterConfig(adapter="low-rank", size=4)
    more = request(tmp_path, folder, ("number", "qa"), adapter=adapter, seeds=(1, 2))
    results = add_tasks(own, folder, more)
    after = files_of(folder)
    assert {name: after[name] for name in before} == before
    added = {name for name in after if name not in before}
    assert all(name.startswith(("tasks/number/", "tasks/qa/")) for name in added)
    assert not any(Path(name).name in ("config.json", "model.safetensors", "rows.safetensors") for name in added)
    assert {name: said(folder, name) for name in answers} == answers
    assert said(folder, "number", 1) == said(folder, "number") != said(folder, "number", 2)
    for name, result in zip(("number", "qa"), results, strict=True):
        assert verified(result).fresh
        for seed in (1, 2):
            written = folder / "tasks" / name / "seeds" / str(seed) / "predictions-test.jsonl"
            assert same(folder, name, seed, written)
    assert [one.fresh for one in add_tasks(own, folder, more)] == [False, False]
    assert files_of(folder) == after
    again = train_tasks(own, request(tmp_path, folder.parent / "adapted"))
    assert (again.fresh, files_of(folder)) == (False, after)


def test_a_task_that_is_there_is_refused(folder: Path, tmp_path: Path) -> None:
    own = session(tmp_path, "many")
    add_tasks(own, folder, request(tmp_path, folder, ("number",)))
    before = files_of(folder)
    for name, called in (("ner", "ner"), ("number", "ner"), ("number", "NER"), ("number", "Number")):
        with pytest.raises(ConflictError, match=r"has a task \w+ already: give the new task another name, or remove"):
            add_tasks(own, folder, request(tmp_path, folder, tasks=(entry(tmp_path, name, called),)))
    more = request(tmp_path, folder, ("number",), training=TrainConfig(epochs=1))
    with pytest.raises(ConflictError, match=r"has a task number already, added with other settings .*epochs: 2 → 1"):
        add_tasks(own, folder, more)
    other = entry(tmp_path, "number", train=(str(task_file(tmp_path, "number", "dev")),))
    with pytest.raises(ConflictError, match=r"number already, added with other settings or files \(other files\)"):
        add_tasks(own, folder, request(tmp_path, folder, tasks=(other,)))
    assert files_of(folder) == before
    (forced,) = add_tasks(replace(own, force=True), folder, more)
    assert forced.fresh
    assert forced.manifest.config["epochs"] == 1


def test_training_anew_takes_no_added_task_away(folder: Path, tmp_path: Path) -> None:
    own = session(tmp_path, "many")
    add_tasks(own, folder, request(tmp_path, folder, ("number",)))
    before, wanted = files_of(folder), request(tmp_path, folder.parent / "adapted")
    with pytest.raises(ConflictError, match=r"has tasks that were added to it \(number\)"):
        train_tasks(replace(own, force=True), wanted)
    task_file(tmp_path, "ner", "train").write_text("virus\tB-Disease\n\nthe\tO\n")
    with pytest.raises(ConflictError, match=r"added to it \(number\).*: give another --out, or remove them"):
        train_tasks(own, wanted)
    assert files_of(folder) == before
    remove_task(folder, "number")
    assert train_tasks(own, wanted).fresh


def test_a_task_is_removed_and_the_others_stay(tiny_model: TinyModel, tmp_path: Path) -> None:
    wanted = request(tmp_path, adapted(tiny_model), seeds=(0, 1))
    own = session(tmp_path, "many")
    folder = train_tasks(own, wanted).folder
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
    again = train_tasks(own, wanted)
    assert not verified(again).fresh
    notes = own.progress
    assert isinstance(notes, Notes)
    assert notes.notes[-1].endswith("many had ner, too, until removed: train it anew with --force")
    assert files_of(folder) == after
    remove_task(folder, "number")
    assert {name: digest for name, digest in after.items() if "number" not in name} == files_of(folder)
    add_tasks(own, folder, request(tmp_path, folder, ("ner",)))
    assert [(one.name, one.is_added) for one in list_tasks(folder)] == [("ner", True), ("ill.1", False)]
    remove_task(folder, "ner")
    assert train_tasks(replace(own, force=True), wanted).fresh
    assert len(list_tasks(folder)) == 2


def test_a_killed_removal_is_ended_by_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before = said(folder, "ill.1")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_task(folder, "ner")
    assert [one.name for one in list_tasks(folder)] == ["ill.1"]
    assert said(folder, "ill.1") == before
    assert list(folder.rglob(".*"))
    wanted = request(folder.parent, folder.parent / "adapted")
    assert not train_tasks(session(folder.parent, "many"), wanted).fresh
    assert not list(folder.rglob(".*"))
    assert said(folder, "ill.1") == before


@pytest.mark.parametrize("frozen", [True, False])
def test_a_memory_goes_along(frozen: bool, tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    facts_file(model)
    options: Json = {"memory": "base", "memory_config": MemoryConfig(strategy="single", frozen=frozen)}
    own = session(tmp_path, "many")
    folder = train_tasks(own, request(tmp_path, model, **options)).folder
    memory = read_json(folder / "multitask.json")["memory"]
    assert (memory["strategy"], memory["frozen"]) == ("single", frozen)
    before = files_of(folder)
    for name in ("ner", "ill.1"):
        assert same(folder, name, None, folder / "seeds" / "0" / "tasks" / name / "predictions-test.jsonl")
    with pytest.raises(UsageError, match="have the memory of the encoder, if it has one: leave out --memory"):
        add_tasks(own, folder, request(tmp_path, folder, ("number",), memory="base"))
    add_tasks(own, folder, request(tmp_path, folder, ("number",)))
    after = files_of(folder)
    assert {name: after[name] for name in before} == before
    assert not any("memory" in name for name in set(after) - set(before))
    assert same(folder, "number", None, folder / "tasks" / "number" / "seeds" / "0" / "predictions-test.jsonl")


def test_runs_of_the_same_request_are_alike(folder: Path, tmp_path: Path) -> None:
    other = train_tasks(session(tmp_path, "other"), request(tmp_path, folder.parent / "adapted"))
    assert digests(folder) == digests(other.folder)


def test_which_task_is_meant(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"many has 2 tasks on one encoder \(ner, ill\.1\): name one with --task"):
        TaskFolder.open(str(folder))
    for name in ("nothing", "../tasks/ner", str(folder / "tasks" / "ner")):
        with pytest.raises(MissingError, match=r"many has no task '.*': it has ner, ill\.1"):
            TaskFolder.open(str(folder), task=name)
    remove_task(folder, "ner")
    assert TaskFolder.open(str(folder)).name == "ill.1"
    single = finetune(session(tmp_path, "one"), ner_request(tmp_path, folder.parent / "adapted")).folder
    with pytest.raises(UsageError, match=r"--task ner, but .*one has one task: leave out --task"):
        TaskFolder.open(str(single), task="ner")
    for use in (lambda: list_tasks(single), lambda: remove_task(single, "ner")):
        with pytest.raises(UsageError, match="has no tasks that share an encoder: give the folder that finetune --tas"):
            use()
    with pytest.raises(UsageError, match="has no encoder that tasks share"):
        add_tasks(session(tmp_path), single, request(tmp_path, single))


def test_other_stages_take_the_encoder_and_what_is_trained_on_it(folder: Path, tmp_path: Path) -> None:
    """One task is fine-tuned on it, and others share it anew."""
    alone = finetune(session(tmp_path, "one"), ner_request(tmp_path, folder))
    assert TaskFolder.open(str(alone.folder)).name is None
    more = train_tasks(session(tmp_path, "more"), request(tmp_path, folder, ("number",)))
    assert [one.name for one in list_tasks(more.folder)] == ["number"]
    assert read_scores(more)["metrics"] == {"number": "pearson"}


def test_an_expanded_model_keeps_its_tasks(tiny_model: TinyModel, tmp_path: Path) -> None:
    base = tiny_model(name="base", initializer_range=0.1)
    folder = train_tasks(session(tmp_path, "many"), request(tmp_path, base)).folder
    grown = expand(folder, tmp_path / "grown")
    for name in ("ner", "ill.1"):
        assert said(grown, name, pool="base") == said(folder, name, pool="base")
        assert said(grown, name, pool="expanded") != said(folder, name, pool="base")


def test_requests_that_cannot_be(tmp_path: Path, tiny_model: TinyModel) -> None:
    model = tiny_model()
    with pytest.raises(UsageError, match="no tasks"):
        request(tmp_path, model, ())
    with pytest.raises(UsageError, match="--keep best needs a development set"):
        request(tmp_path, model, training=TrainConfig(keep="best"))
    with pytest.raises(UsageError, match="--patience needs a development set"):
        request(tmp_path, model, training=TrainConfig(patience=1))
    with pytest.raises(UsageError, match="--strategy logits lets a general model use the one head"):
        request(tmp_path, model, memory="base", memory_config=MemoryConfig(strategy="logits"))
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    for changes, message in (
        ({"train": (str(empty),)}, "task ner: "),
        ({"test": {"far": str(empty)}}, "task ner: test far has no examples"),
        ({"metric": "by_type.Nothing.f1"}, "task ner: tasks file: metric .* Nothing, which no training example has"),
    ):
        wanted = request(tmp_path, model, tasks=(entry(tmp_path, "ner", **changes),))
        with pytest.raises(InputError, match=message):
            train_tasks(session(tmp_path), wanted)
