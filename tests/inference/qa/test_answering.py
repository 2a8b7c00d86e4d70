"""Questions answered in whole documents: from files to rows, and what is kept of a run that was killed."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from torchmetrics.functional.text import squad

from greenadapt.config import QaConfig, ReadingOptions
from greenadapt.errors import ConflictError, UsageError
from greenadapt.inference.predictor import PredictionRequest
from greenadapt.inference.qa.answering import MEASURES, Answerer, QaRequest, compare_rows, score_rows
from greenadapt.inference.qa.question_set import QuestionSources
from greenadapt.progress import Silent
from greenadapt.stages.qa import answer
from greenadapt.store.arrays import Array
from greenadapt.tasks.spans import score_answer
from tests.conftest import Notes
from tests.support.predictions import assert_alike, predict
from tests.support.small_tasks import Json, qa_file, question_lines, read_json, sentences, session

pytestmark = pytest.mark.usefixtures("one_thread")
TinyModel = Callable[..., Path]
QA = "BertForQuestionAnswering"
SHORT = ReadingOptions(max_length=32)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(3):
        text = "\n".join(" ".join(words) for words in sentences(8, seed=number))
        (folder / f"{number}.txt").write_text(text, "utf-8")
    return folder


def request(model: Path, data: Path | None = None, **changes: Any) -> QaRequest:
    sources = QuestionSources(str(data)) if data is not None else changes.pop("sources")
    return QaRequest(str(model), sources, **{"reading": SHORT, **changes})


def of_documents(folder: Path, *questions: str) -> QuestionSources:
    return QuestionSources(
        documents=(str(folder),), question_texts=questions or ("what virus", "the heart"), sample_by="document"
    )


def rows_of(query: QaRequest, progress: Notes | None = None) -> list[Json]:
    return list(Answerer(query, progress or Notes()).rows())


@pytest.mark.slow
def test_answers_are_those_that_predict_gives(model: Path, tmp_path: Path) -> None:
    data = qa_file(tmp_path / "data.json", 6)
    (model / "task.json").write_text(json.dumps({"task": "qa", "max_length": 32, "pool": "mean"}))
    theirs_request = PredictionRequest((str(model),), str(question_lines(data)))
    theirs = [prediction.row(tags=True) for prediction in predict(theirs_request, Silent())]
    for row, expected in zip(rows_of(request(model, data, reading=ReadingOptions())), theirs, strict=True):
        del expected["line"]
        assert_alike({name: row[name] for name in expected}, expected, rel=1e-4)


def test_a_row_has_the_answer_in_its_sentence_and_its_scores(model: Path, tmp_path: Path) -> None:
    data = qa_file(tmp_path / "data.json", 4)
    contexts = [paragraph["context"] for paragraph in read_json(data)["data"][0]["paragraphs"]]
    answerer = Answerer(request(model, data, config=QaConfig(top=3)), Notes())
    rows = list(answerer.rows())
    assert [row["id"] for row in rows] == ["0", "1", "2", "3"]
    for row, context in zip(rows, contexts, strict=True):
        assert len(row["answers"]) == 3
        assert {name: row[name] for name in row["answers"][0]} == row["answers"][0]
        assert [entry["logit"] for entry in row["answers"]] == sorted(
            (entry["logit"] for entry in row["answers"]), reverse=True
        )
        for entry in row["answers"]:
            assert context[entry["start"] : entry["end"]] == entry["answer"]
            begin = entry["start"] - entry["sentence_start"]
            assert entry["sentence"][begin : begin + len(entry["answer"])] == entry["answer"]
        assert row["gold"] == ["tachycardia"]
        scores = score_answer(row["answer"], row["gold"], is_second=False)
        assert (row["em"], row["f1"], row["substr"]) == (scores.em, scores.f1, scores.substr)
    scores = answerer.summary()["scores"]
    assert scores["questions"] == 4
    assert scores["f1"] == pytest.approx(np.mean([row["f1"] for row in rows]))
    assert "comparison" not in answerer.summary()


@pytest.mark.slow
def test_compared_with_its_base_model(model: Path, tmp_path: Path) -> None:
    base = model.parent / "base"
    data = qa_file(tmp_path / "data.json", 12)
    answerer = Answerer(request(model, data, compare=str(base)), Notes())
    rows = list(answerer.rows())
    for pool in ("base", "expanded"):
        one_view = rows_of(request(model, data, reading=replace(SHORT, pool=pool)))
        assert [row["compared"][pool]["answer"] for row in rows] == [row["answer"] for row in one_view]
    # Nothing was trained since the model got its words: with the old tokenizer it is the base model.
    assert [row["compared"]["base"]["answer"] for row in rows] == [
        row["compared"]["base_model"]["answer"] for row in rows
    ]
    assert [row["answer"] for row in rows] == [row["answer"] for row in rows_of(request(model, data))]
    comparison = answerer.summary()["comparison"]
    assert [entry["name"] for entry in comparison["models"]] == ["base_model", "base", "expanded", "mean"]
    assert comparison["models"][1]["differences"]["f1"]["difference"] == 0
    assert comparison["changed"] == sum(row["answer"] != row["compared"]["base_model"]["answer"] for row in rows) > 0
    with pytest.raises(UsageError, match="leave out --pool"):
        request(model, data, compare=str(base), reading=ReadingOptions("base"))


def test_a_second_run_does_nothing_and_what_changed_is_noticed(model: Path, documents: Path, tmp_path: Path) -> None:
    query, run = request(model, sources=of_documents(documents)), session(tmp_path)
    assert answer(run, query).fresh
    assert not answer(run, query).fresh
    with pytest.raises(ConflictError, match=r"another result \(top: 1 → 2\)"):
        answer(run, replace(query, config=QaConfig(top=2)))
    (documents / "0.txt").write_text("the virus")
    with pytest.raises(ConflictError, match=r"another result \(.* changed\)"):
        answer(run, query)
    assert answer(session(tmp_path, "run2"), query).fresh
    (model / "task.json").write_text(json.dumps({"task": "qa", "max_answer_chars": 9}))
    with pytest.raises(ConflictError, match=r"another result \(model.* changed\)"):
        answer(session(tmp_path, "run2"), query)
    piped = replace(query, sources=QuestionSources(documents=("-",), question_texts=("what",)))
    with pytest.raises(UsageError, match="standard input cannot"):
        answer(session(tmp_path, "piped"), piped)


def test_a_killed_run_resumes_after_its_last_answer(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = request(model, qa_file(tmp_path / "data.json", 9))
    whole = answer(session(tmp_path, "whole"), query)
    rows = Answerer.rows

    def killed(self: Answerer, answered: Any = ()) -> Iterator[Any]:
        for number, row in enumerate(rows(self, answered)):
            yield row
            if number == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Answerer, "rows", killed)
        with pytest.raises(KeyboardInterrupt):
            answer(session(tmp_path), query)
    [file] = tmp_path.glob(".run-*/answers.jsonl")
    with open(file, "a") as stream:
        stream.write('{"id": "hal')  # as a kill while it is written leaves it
    resumed = session(tmp_path)
    result = answer(resumed, query)
    assert resumed.progress.notes[-1] == "resuming after 4 answers"  # type: ignore[attr-defined]
    for name in ("answers.jsonl", "scores.json"):
        assert (result.folder / name).read_text() == (whole.folder / name).read_text()


def test_there_may_be_no_answer(model: Path, tmp_path: Path) -> None:
    data = qa_file(tmp_path / "data.json", 9, impossible=True)
    sure = rows_of(request(model, data, config=QaConfig(no_answer=True)))
    assert all("null_odds" not in row for row in rows_of(request(model, data)))
    assert [row["answer"] == "" for row in sure] == [row["null_odds"] > 0 for row in sure]
    threshold = float(np.median([row["null_odds"] for row in sure]))
    rows = rows_of(request(model, data, config=QaConfig(no_answer=True, null_threshold=threshold, top=20)))
    assert [row["answer"] == "" for row in rows] == [row["null_odds"] > threshold for row in sure]
    assert 0 < sum(row["answer"] == "" for row in rows) < 9
    for row in rows:
        assert row["gold"] == ([] if int(row["id"]) % 3 == 0 else ["tachycardia"])
    with pytest.raises(UsageError, match="--null-threshold, but the model always answers: give --no-answer"):
        Answerer(request(model, data, config=QaConfig(null_threshold=1.0)), Notes())
    answerer = Answerer(request(model, data, config=QaConfig(no_answer=True)), Notes())
    list(answerer.rows())
    scores = answerer.summary()["scores"]
    assert (scores["has_answer"]["questions"], scores["no_answer"]["questions"]) == (6, 3)


def test_a_model_that_gives_no_numbers(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model(QA, name="broken")
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    weights["qa_outputs.weight"][:] = 3e38  # so that the sums overflow
    safetensors.numpy.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    notes = Notes()
    data = qa_file(tmp_path / "data.json", 1)
    answerer = Answerer(request(folder, data, config=QaConfig(no_answer=True)), notes)
    [row] = answerer.rows()
    assert (row["answer"], row["logit"], row["null_odds"]) == ("", None, None)
    answerer.summary()
    assert "the model gives no numbers" in notes.warnings[-1]


Json = dict[str, Any]
NAMES = {"base_model": "bert", "mean": "green-bert"}
WORDS = ["virus", "isolated", "2012", "Jeddah", "the", "bats", "camels"]


def scored_answer(text: str, gold: list[str] | None) -> Json:
    scores = {} if gold is None else asdict(score_answer(text, gold, is_second=True))
    return {"answer": text, "start": 0 if text else None, "score": 0.5, **scores}


def row(number: int, texts: dict[str, str], gold: list[str] | None) -> Json:
    answers = {name: scored_answer(text, gold) for name, text in texts.items()}
    ours = answers.pop("mean")
    question = {"id": f"q{number}", "question": f"What is {number}?"}
    return {
        **question,
        **ours,
        **({} if gold is None else {"gold": gold}),
        **({"compared": answers} if answers else {}),
    }


def some_text(random: np.random.Generator, n: int = 4) -> str:
    return " ".join(random.choice(WORDS, random.integers(1, n)).tolist())


@pytest.fixture
def rows() -> list[Json]:
    """120 questions, a tenth of them without answer, to which four models have answers."""
    random = np.random.default_rng(0)
    questions = []
    for number in range(120):
        gold = [] if number % 10 == 0 else [some_text(random), some_text(random)]
        texts = {name: some_text(random) for name in ("base_model", "base", "expanded", "mean")}
        texts["mean"] = random.choice([texts["base_model"], texts["mean"], *gold, ""])
        questions.append(row(number, texts, gold))
    return questions


@pytest.fixture
def groups() -> list[str]:
    """Their contexts, of 1 to 9 questions."""
    return [f"context {i}" for i in np.random.default_rng(1).integers(30, size=120)]


def values(rows: list[Json], measure: str) -> Array:
    return np.array([row[measure] for row in rows])


def test_scores_are_those_of_the_published_scorer(rows: list[Json], groups: list[str]) -> None:
    answered = [row for row in rows if row["gold"]]
    predictions = [{"prediction_text": row["answer"], "id": row["id"]} for row in answered]
    targets = [{"answers": {"text": row["gold"], "answer_start": [0, 0]}, "id": row["id"]} for row in answered]
    expected = squad(predictions, targets)
    scores = score_rows(rows, groups)
    assert 100 * scores["has_answer"]["em"] == pytest.approx(expected["exact_match"].item())
    assert 100 * scores["has_answer"]["f1"] == pytest.approx(expected["f1"].item())
    assert scores["has_answer"]["questions"] == 108
    assert scores["no_answer"]["questions"] == 12
    assert scores["no_answer"]["em"] == np.mean([row["answer"] == "" for row in rows if not row["gold"]])
    assert (scores["questions"], scores["unlabelled"]) == (120, 0)
    for measure in MEASURES:
        assert scores[measure] == pytest.approx(values(rows, measure).mean())


def test_questions_without_gold_are_left_out_and_counted(rows: list[Json], groups: list[str]) -> None:
    unlabelled = [row(i, {"mean": "virus", "base_model": "bats"}, None) for i in range(7)]
    mixed, mixed_groups = [*unlabelled, *rows], ["far"] * 7 + groups
    assert score_rows(mixed, mixed_groups) == {**score_rows(rows, groups), "unlabelled": 7}
    assert score_rows(unlabelled, ["far"] * 7) == {"questions": 0, "contexts": 0, "unlabelled": 7}
    assert score_rows([], []) == {"questions": 0, "contexts": 0, "unlabelled": 0}


def test_every_model_is_compared_with_the_base_model(rows: list[Json], groups: list[str]) -> None:
    comparison = compare_rows(rows, groups, NAMES)
    models = comparison["models"]
    assert [model["name"] for model in models] == ["base_model", "base", "expanded", "mean"]
    assert [model["model"] for model in models] == ["bert", "green-bert", "green-bert", "green-bert"]
    assert "differences" not in models[0]
    assert {name: models[3][name] for name in (*MEASURES, "intervals")} == {
        name: score_rows(rows, groups)[name] for name in (*MEASURES, "intervals")
    }
    base = [row["compared"]["base_model"] for row in rows]
    answers = {name: [row["compared"][name] for row in rows] for name in ("base", "expanded")} | {"mean": rows}
    for model in models[1:]:
        for measure in MEASURES:
            expected = values(answers[model["name"]], measure).mean() - values(base, measure).mean()
            difference = model["differences"][measure]
            assert difference["difference"] == pytest.approx(expected)
            assert difference["low"] < expected < difference["high"]
    assert (comparison["resampled"], comparison["contexts"]) == ("contexts", len(set(groups)))


def test_changed_answers_are_counted(rows: list[Json], groups: list[str]) -> None:
    comparison = compare_rows(rows, groups, NAMES)
    changed = [row for row in rows if row["answer"] != row["compared"]["base_model"]["answer"]]
    gains = [row["f1"] - row["compared"]["base_model"]["f1"] for row in changed]
    assert comparison["changed"] == len(changed) < len(rows)
    assert comparison["better"] == sum(gain > 0 for gain in gains)
    assert comparison["worse"] == sum(gain < 0 for gain in gains)
    assert comparison["equal"] == sum(gain == 0 for gain in gains) > 0


def test_without_gold_answers_what_changed_is_told() -> None:
    rows = [row(i, {"base_model": "virus", "mean": "virus" if i % 2 else "bats"}, None) for i in range(20)]
    comparison = compare_rows(rows, ["one"] * 20, NAMES)
    assert comparison == {
        "questions": 0,
        "contexts": 0,
        "unlabelled": 20,
        "models": [{"name": "base_model", "model": "bert"}, {"name": "mean", "model": "green-bert"}],
        "changed": 10,
    }
