"""The functions do what the commands do, take data in all its forms, and raise errors instead of exiting."""

import json
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import greenadapt
from greenadapt.config import (
    AdapterConfig,
    ExpandConfig,
    ReadingOptions,
    SessionOptions,
    TaskConfig,
    TrainConfig,
    W2VConfig,
)
from greenadapt.errors import ConflictError, GreenadaptError, InputError, MissingError, UsageError
from tests.conftest import Notes, json_lines
from tests.support.small_tasks import (
    NEW,
    TinyModel,
    adapted,
    facts_file,
    known_text,
    lines,
    ner_file,
    qa_file,
    texts_file,
    worded_model,
)

Run = Callable[..., Result]
W2V: dict[str, Any] = {"dim": 32, "min_count": 1, "epochs": 1}
TRAIN: dict[str, Any] = {"epochs": 1, "batch_size": 8}


def in_workspace(workspace: Path | str) -> SessionOptions:
    return SessionOptions(Path(workspace), workers=1)


def options(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def files(folder: Path) -> dict[str, bytes]:
    """All that decides what a model computes."""
    kinds = (".safetensors", ".json")
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.suffix in kinds
    }
    return {name: content for name, content in contents.items() if name not in ("manifest.json", "scores.json")}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "papers.txt"
    path.write_text(known_text(), "utf-8")
    return path


@pytest.mark.slow
def test_adapt_writes_what_the_command_writes_and_finds_it_again(
    tiny_model: TinyModel, corpus: Path, tmp_path: Path, run_alone: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    model = worded_model(tiny_model)
    place = ("-o", tmp_path / "theirs", "--workspace", "other", "--workers", 1)
    run_alone("adapt", "-c", corpus, "-m", model, *place, *options(W2V))
    settings: Any = {"w2v": W2VConfig(**W2V), "options": in_workspace("own")}
    capsys.readouterr()
    with pytest.warns(UserWarning, match="by --rows form .* no more than by chance"):
        ours = greenadapt.adapt(corpus, model, "ours", progress=False, **settings)
    assert files(Path(ours)) == files(tmp_path / "theirs")
    assert ours.folder == Path("ours").absolute()
    assert set(ours.words) == {*NEW}
    assert capsys.readouterr() == ("", "")
    progress = Notes()
    greenadapt.adapt(str(corpus), model, "ours", progress=progress, **settings)
    assert progress.lines == []  # nothing to do
    assert f"{len(NEW)} words of papers.txt" in repr(ours)
    assert repr(greenadapt.load("ours")) == repr(ours)
    [first, *_] = ours.neighbours(NEW[0], top=2)
    assert (first.word, len(first.neighbours)) == (NEW[0], 2)
    assert NEW[0] in repr(ours.neighbours(NEW[0]))
    with pytest.raises(UsageError, match="0 words"):
        ours.neighbours("\ud800")


@pytest.mark.slow
def test_every_form_of_the_same_records_is_the_same_corpus(tmp_path: Path) -> None:
    from greenadapt.api.arguments import corpus_of, labelled_sources

    records = [{"text": f"Zeile {i} für alle", "label": "ab"[i % 2]} for i in range(5)]
    forms: list[Any] = [records, iter(records)]
    forms += [import_module(name).DataFrame(records) for name in ("pandas", "polars") if find_spec(name)]
    forms += [import_module("datasets").Dataset.from_list(records)] if find_spec("datasets") else []
    [name] = {corpus_of(form, tmp_path) for form in forms}
    [source] = labelled_sources(iter(records), tmp_path, "train")
    assert lines(Path(source)) == records
    assert Path(source).stem == name
    assert corpus_of([record["text"] for record in records], tmp_path) == corpus_of(
        ({"text": record["text"]} for record in records), tmp_path
    )
    assert corpus_of("ein Text\nmit zwei Zeilen", tmp_path) != corpus_of(["ein Text"], tmp_path)
    assert labelled_sources([Path("a.tsv"), "b.tsv"], tmp_path, "train") == ("a.tsv", "b.tsv")


@pytest.mark.slow
def test_finetune_writes_what_the_command_writes(tiny_model: TinyModel, tmp_path: Path, run_alone: Run) -> None:
    model = adapted(tiny_model)
    train, test = texts_file(tmp_path / "train.jsonl"), texts_file(tmp_path / "test.jsonl", 15, 1)
    command = ["finetune", "--task", "classification", "-m", model, "--train", train, "--test", test, "--seeds", 2]
    run_alone(*command, "-o", tmp_path / "theirs", "--max-length", 64, *options(TRAIN))
    task, training = TaskConfig("classification", max_length=64), TrainConfig(**TRAIN)
    ours = greenadapt.finetune(
        model, task, lines(train), test=test, seeds=2, out="ours", training=training, progress=False
    )
    assert files(Path(ours)) == files(tmp_path / "theirs")
    assert ours.labels == ["ill", "well"]
    assert "2 seeds; test macro_f1" in repr(ours)
    run_alone("predict", "-m", "theirs", "-i", test, "-o", "theirs.jsonl")
    theirs = [{name: value for name, value in row.items() if name != "line"} for row in lines(Path("theirs.jsonl"))]
    assert ours.predict(lines(test)) == theirs
    assert ours.predict(test)[0] == lines(Path("theirs.jsonl"))[0]
    assert ours.predict(lines(test)[0]["text"])["label"] == theirs[0]["label"]
    scores = json.loads(run_alone("evaluate", "-m", "theirs", "--test", test, "--json").stdout)
    assert ours.evaluate(test, progress=False) == scores
    with pytest.raises(UsageError, match="data has 2 files"):
        ours.evaluate([test, train], progress=False)
    assert greenadapt.load("ours", reading=ReadingOptions(seed=1)).predict("a virus") != ours.predict("a virus")
    assert ours.scores["mean"] == scores["mean"]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            ("--epochs", 3, "--seeds", 2, "--seed", 5, "--decoding", "argmax"),
            {"training": TrainConfig(epochs=3), "seeds": (5, 6)},
        ),
        (("--adapter", "lhuc", "--memory", "other"), {"adapter": AdapterConfig("lhuc"), "memory": "other"}),
    ],
)
def test_a_call_and_a_command_ask_for_the_same(
    words: tuple[Any, ...], settings: dict[str, Any], tmp_path: Path, run_alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one task, and of a file of tasks."""
    requests: list[Any] = []

    def stop(session: object, request: Any, *_: object) -> None:
        requests.append(request)
        raise UsageError("stop")

    for name in ("compare.finetune", "compare.compare"):
        monkeypatch.setattr(f"greenadapt.stages.finetune.{name}", stop)
    ner_file(tmp_path / "a.tsv")
    (tmp_path / "tasks.toml").write_text('[[task]]\nname = "a"\nkind = "ner"\ntrain = "a.tsv"\n')
    is_shared = "adapter" in settings
    options = ("--tasks", "tasks.toml") if is_shared else ("--task", "ner", "--train", "a.tsv")
    run_alone("finetune", "--model", "any", *options, "--preset", "paper", *words, code=2)
    call: Any = partial(greenadapt.finetune, task=TaskConfig(decoding="argmax"), train="a.tsv")
    if is_shared:
        call = partial(greenadapt.finetune_tasks, tasks="tasks.toml")
    with pytest.raises(UsageError, match=r"^stop$"):
        call("any", preset="paper", **settings)
    assert requests[0] == requests[1]
    assert requests[0].training.epochs == (25 if is_shared else 3)


def test_ner_on_records_gives_entities_and_tags_if_wanted(two_tasks: Path) -> None:
    ner = greenadapt.TaskModel(two_tasks, task="ner")
    row = ner.predict("a patient with tachycardia")
    assert {*row} == {"text", "entities", "score"}
    [row] = ner.predict([{"tokens": ["a", "virus"], "id": 7}], tags=True)
    assert (row["id"], row["words"], len(row["tags"])) == (7, ("a", "virus"), 2)
    assert ner.labels == ["Disease", "Gene"]
    with pytest.raises(UsageError, match="is for ner, not for question answering"):
        ner.answer("what?", "this")


def test_answers_have_the_numbers_of_the_command(tiny_model: TinyModel, tmp_path: Path, run_alone: Run) -> None:
    plain = tiny_model("BertForQuestionAnswering", initializer_range=0.3)  # finetune did not write it
    data = qa_file(tmp_path / "questions.json", 3)
    result = run_alone("qa", "-m", plain, "--data", data, "--top", 2, "--json")
    rows = json_lines(result)[:3]
    model = greenadapt.load(plain)
    assert isinstance(model, greenadapt.TaskModel)
    paragraphs = json.loads(data.read_text())["data"][0]["paragraphs"]
    contexts = [entry["context"] for entry in paragraphs]
    answers = model.answer("what heart", contexts, top=2)
    for ours, row in zip(answers, rows, strict=True):
        keys = ("answer", "start", "end", "score")
        assert [[entry[key] for key in keys] for entry in ours] == [
            [entry[key] for key in keys] for entry in row["answers"]
        ]
    assert model.answer("what heart", contexts[0])["answer"] == answers[0][0]["answer"]
    with pytest.raises(UsageError, match="2 questions and 3 contexts"):
        model.answer(["a", "b"], contexts)


def test_several_tasks_answer_together_or_one_by_one(two_tasks: Path) -> None:
    shared = greenadapt.TaskModel(two_tasks)
    assert shared.tasks == {"ner": "ner", "ill.1": "classification"}
    together = shared.predict("a virus of the heart")["tasks"]
    single = greenadapt.TaskModel(two_tasks, task="ill.1")
    alone = single.predict("a virus of the heart")
    assert together["ill.1"]["probabilities"] == pytest.approx(alone["probabilities"])
    assert "ill.1: classification" in repr(shared)
    with pytest.raises(UsageError, match=r"evaluate is for one task.*ner, ill\.1"):
        shared.evaluate([{"text": "a", "label": "ill"}])


def test_load_says_what_a_folder_is_not(tiny_model: TinyModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="BertForSequenceClassification that finetune did not write"):
        greenadapt.load(tiny_model("BertForSequenceClassification"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"not a model folder: it has no config\.json"):
        greenadapt.load(tmp_path / "empty")
    with pytest.raises(MissingError, match="no-such"):
        greenadapt.load("no-such/model")
    plain = tiny_model()
    assert type(greenadapt.load(plain)) is greenadapt.EncoderModel
    with pytest.raises(UsageError, match="leave out task and reading"):
        greenadapt.load(plain, reading=ReadingOptions(seed=1))
    moved = adapted(tiny_model)
    facts_file(moved)
    model = greenadapt.load(moved)
    assert isinstance(model, greenadapt.AdaptedModel)
    assert [row.view for row in model.neighbours("virus")] == ["row → wordpieces", "row → added words"]


@pytest.mark.slow
def test_errors_are_exceptions_and_warnings_are_pythons(
    tiny_model: TinyModel, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = worded_model(tiny_model)
    common: dict[str, Any] = {"out": tmp_path / "out", "options": in_workspace(tmp_path / "ws"), "progress": False}
    capsys.readouterr()
    with pytest.raises(MissingError, match="no corpus or file is called papers"):
        greenadapt.adapt("papers", model, **common)
    with pytest.raises(UsageError, match="w2v is of type dict, must be an instance of W2VConfig"):
        greenadapt.adapt("papers", model, **common, w2v=W2V)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="preset is 'papers', must be 'paper'"):
        greenadapt.adapt("papers", model, **common, preset="papers")  # type: ignore[arg-type]
    for data, message in (({"train": []}, "is a dictionary"), ([], "has no texts")):
        with pytest.raises(GreenadaptError, match=message):
            greenadapt.adapt(data, model, **common)
    texts = ["\ud800 lone", *known_text().splitlines()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        greenadapt.adapt(texts, model, **common, w2v=W2VConfig(**W2V))
    assert any("broken UTF-8" in str(warning.message) for warning in caught)
    with pytest.raises(ConflictError, match="another"):
        greenadapt.adapt(texts, model, **common, w2v=W2VConfig(**W2V), expand=ExpandConfig("norm"))
    assert capsys.readouterr() == ("", "")
