"""Fine-tuning from files to a published folder: against plain transformers and public scorers; resumed and refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from greenadapt.checkpoints.layout import SCORES, read_described
from greenadapt.config import ReadingOptions, TaskConfig
from greenadapt.errors import InputError
from greenadapt.inference.predictor import PredictionRequest
from greenadapt.progress import Silent
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import Session
from greenadapt.store.results import Result, verify_result
from greenadapt.training.finetune import FinetuneRun
from tests.support.predictions import predict
from tests.support.small_tasks import (
    TRAIN,
    Json,
    Notes,
    TinyModel,
    adapted,
    lines,
    ner_request,
    qa_file,
    read_json,
    session,
    tags_of,
    texts_file,
)

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = TaskConfig(max_length=64)


def noted(tmp_path: Path, notes: Notes, out: str = "run") -> Session:
    return replace(session(tmp_path, out), progress=notes)


def predicted(folder: Path, source: Path, **options: Any) -> list[Json]:
    request = PredictionRequest((str(folder),), str(source), reading=ReadingOptions(**options))
    return [prediction.row(tags=True) for prediction in predict(request, Silent())]


def plain(folder: Path, head: str) -> tuple[Any, Any]:
    """Model and base tokenizer by plain transformers."""
    model = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder / "base_tokenizer")


def check_folder(result: Result, request: FinetuneRequest, labels: list[str]) -> Json:
    """What every task's folder has; returns its scores."""
    folder, scores = verify_result(result).folder, read_described(result.folder / SCORES)
    hidden = [path.name for path in folder.rglob("*") if path.name.startswith(".")]
    assert hidden == []
    config = transformers.AutoConfig.from_pretrained(folder)
    assert labels == [] or [config.id2label[i] for i in range(len(labels))] == labels
    words = transformers.AutoTokenizer.from_pretrained(folder).tokenize("tachycardia")
    pieces = transformers.AutoTokenizer.from_pretrained(folder / "base_tokenizer").tokenize("tachycardia")
    assert (words, len(pieces) > 1) == (["tachycardia"], True)
    task = read_json(folder / "task.json")
    assert (task["task"], task["pool"], task["mix"]) == (request.tasks[0].config.task, "mean", "sample")
    assert (scores["task"], scores["pool"]) == (request.tasks[0].config.task, "mean")
    (seed,) = scores["seeds"]
    assert set(seed["test"]["views"]) == {"mean", "base", "expanded"}
    assert seed["test"]["views"]["mean"] == {name: seed["test"][name] for name in seed["test"]["views"]["mean"]}
    assert scores["mean"][scores["main"]] == seed["test"][scores["main"]]
    assert scores["std"] == {}
    history = lines(folder / "seeds" / "0" / "history.jsonl")
    assert [row["epoch"] for row in history] == list(range(1, request.training.epochs + 1))
    assert history[-1]["step"] == seed["steps"]
    assert all(np.isfinite(row["loss"]) for row in history)
    card = (folder / "README.md").read_text("utf-8")
    assert all(f"| {Path(source).name} |" in card for source in request.sources().values())
    assert f"{100 * seed['test'][scores['main']]:.2f}" in card
    assert result.manifest.counts["rows_used"] < result.manifest.counts["rows"]
    return scores


def tuned(model: Path, train: Path, test: Path, labels: list[str], **task: Any) -> tuple[Result, Json]:
    """A model that is fine-tuned and checked, with the scores of its only seed."""
    request = FinetuneRequest.of_one(str(model), (str(train),), None, str(test), replace(SHORT, **task), TRAIN)
    result = finetune(session(train.parent), request)
    (seed,) = check_folder(result, request, labels)["seeds"]
    return result, seed


@pytest.mark.slow
def test_entities(tiny_model: TinyModel, tmp_path: Path) -> None:
    from seqeval.metrics import f1_score, precision_score, recall_score

    model = adapted(tiny_model)
    request = ner_request(tmp_path, model, save_logits=True)
    result = finetune(session(tmp_path), request)
    labels = ["O", "B-Disease", "I-Disease", "B-Gene", "I-Gene"]
    (seed,) = check_folder(result, request, labels)["seeds"]

    text = [line.split("\t")[0] for line in (tmp_path / "test.tsv").read_text().splitlines()]
    sentences = [part.split() for part in " ".join(word or "\n" for word in text).split("\n")]
    gold = [tags_of(words) for words in sentences]
    rows = lines(result.folder / "seeds" / "0" / "predictions.jsonl")
    guesses = [row["tags"] for row in rows]
    expected = [score(gold, guesses) for score in (precision_score, recall_score, f1_score)]
    assert [seed["test"][name] for name in ("precision", "recall", "f1")] == pytest.approx(expected)
    assert 0 < seed["test"]["f1"] < 1
    assert len({view["f1"] for view in seed["test"]["views"].values()}) > 1

    plain_model, tokenizer = plain(result.folder, "TokenClassification")
    source = tmp_path / "text.txt"
    source.write_text("".join(" ".join(words) + "\n" for words in sentences))
    base, mean = (predicted(result.path, source, pool=pool) for pool in ("base", None))
    assert [row["tags"] for row in mean] == guesses
    from greenadapt.store.arrays import ArrayFile

    stored = ArrayFile(result.folder / "seeds" / "0" / "logits.safetensors")
    for i, (words, row) in enumerate(zip(sentences, base, strict=True)):
        inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        of_piece = inputs.word_ids()
        first = [of_piece.index(word) for word in range(len(words))]
        with torch.no_grad():
            logits = plain_model(**inputs).logits[0, first].numpy()
        ours = stored["base"][stored["offsets"][i] : stored["offsets"][i + 1]]
        np.testing.assert_allclose(ours, logits, atol=1e-4)
        assert [tag[2:] for tag in row["tags"]] == [labels[k][2:] for k in logits.argmax(-1)]


@pytest.mark.slow
def test_classes(tiny_model: TinyModel, tmp_path: Path) -> None:
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    files = {name: texts_file(tmp_path / f"{name}.jsonl", 40, seed, pair=True) for seed, name in enumerate("ab")}
    fields = ("text", "second")
    task: Json = {"task": "classification", "text_fields": fields}
    result, seed = tuned(adapted(tiny_model), files["a"], files["b"], ["ill", "well"], **task)
    gold = [row["label"] for row in lines(files["b"])]
    guesses = [row["label"] for row in lines(result.folder / "seeds" / "0" / "predictions.jsonl")]
    scores = seed["test"]
    assert scores["accuracy"] == scores["micro_f1"] == pytest.approx(accuracy_score(gold, guesses))
    assert scores["macro_f1"] == pytest.approx(f1_score(gold, guesses, average="macro"))
    assert scores["mcc"] == pytest.approx(matthews_corrcoef(gold, guesses))

    model, tokenizer = plain(result.folder, "SequenceClassification")
    for row, prediction in zip(lines(files["b"]), predicted(result.path, files["b"], pool="base"), strict=True):
        inputs = tokenizer(*(row[name] for name in fields), return_tensors="pt")
        with torch.no_grad():
            shares = torch.softmax(model(**inputs).logits[0].double(), -1)
        assert list(prediction["probabilities"].values()) == pytest.approx(shares.tolist(), abs=1e-5)


@pytest.mark.slow
def test_numbers(tiny_model: TinyModel, tmp_path: Path) -> None:
    from scipy.stats import pearsonr, spearmanr

    train, test = (texts_file(tmp_path / f"{seed}.jsonl", 40, seed, numbers=True) for seed in (0, 1))
    result, seed = tuned(adapted(tiny_model), train, test, [], task="classification")
    gold = [row["label"] for row in lines(test)]
    values = [row["value"] for row in lines(result.folder / "seeds" / "0" / "predictions.jsonl")]
    expected = [float(score(gold, values).statistic) for score in (pearsonr, spearmanr)]
    assert [seed["test"][name] for name in ("pearson", "spearman")] == pytest.approx(expected)
    model, tokenizer = plain(result.folder, "SequenceClassification")
    assert model.config.problem_type == "regression"
    for row, prediction in zip(lines(test), predicted(result.path, test, pool="base"), strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(row["text"], return_tensors="pt")).logits
        assert prediction["value"] == pytest.approx(logits.item(), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("impossible", [False, True])
def test_answers(tiny_model: TinyModel, tmp_path: Path, impossible: bool) -> None:
    from torchmetrics.functional.text import squad

    train, test = (qa_file(tmp_path / f"{seed}.json", 20, seed, impossible=impossible) for seed in (0, 1))
    result, seed = tuned(adapted(tiny_model), train, test, [], task="qa")
    assert read_json(result.folder / "task.json")["has_null"] == impossible
    questions = [passage["qas"][0] for passage in read_json(test)["data"][0]["paragraphs"]]
    rows = lines(result.folder / "seeds" / "0" / "predictions.jsonl")
    assert [row["id"] for row in rows] == [str(question["id"]) for question in questions]
    answers = [{"prediction_text": row["answer"], "id": row["id"]} for row in rows]
    golds = [
        {"answers": {"text": [a["text"] for a in q["answers"]] or [""], "answer_start": [0]}, "id": str(q["id"])}
        for q in questions
    ]
    expected = squad(answers, golds)
    assert 100 * seed["test"]["em"] == pytest.approx(expected["exact_match"].item(), abs=1e-4)
    assert 100 * seed["test"]["f1"] == pytest.approx(expected["f1"].item(), abs=1e-4)
    if impossible:
        assert seed["test"]["no_answer"]["questions"] == 7
        return
    model, tokenizer = plain(result.folder, "QuestionAnswering")
    contexts = [passage["context"] for passage in read_json(test)["data"][0]["paragraphs"]]
    questions_file = tmp_path / "asked.jsonl"
    questions_file.write_text(
        "".join(f'{{"question": "what heart", "context": "{context}"}}\n' for context in contexts)
    )
    for prediction, context in zip(predicted(result.path, questions_file, pool="base"), contexts, strict=True):
        inputs = tokenizer("what heart", context, return_tensors="pt")
        with torch.no_grad():
            output = model(**inputs)
        begin = int(inputs["token_type_ids"][0].argmax())
        starts, ends = (output[name][0, begin:-1] for name in ("start_logits", "end_logits"))
        of_word = torch.tensor(inputs.word_ids()[begin:-1])
        n_words = len(context.split())
        best = [torch.stack([logits[of_word == word].max() for word in range(n_words)]) for logits in (starts, ends)]
        sums = torch.triu(best[0][:, None] + best[1]) + torch.tril(torch.full((n_words,) * 2, -torch.inf), -1)
        assert prediction["logit"] == pytest.approx(float(sums.max()), abs=1e-3)


@pytest.mark.slow
def test_several_seeds(tiny_model: TinyModel, tmp_path: Path) -> None:
    request = ner_request(tmp_path, adapted(tiny_model), seeds=(4, 5), dev=str(tmp_path / "dev.tsv"))
    result = finetune(session(tmp_path), request)
    scores = read_described(result.folder / SCORES)
    assert [seed["seed"] for seed in scores["seeds"]] == [4, 5]
    for part, summary in (("test", scores), ("dev", scores["dev"])):
        for name in ("f1", "precision", "recall"):
            values = [seed[part][name] for seed in scores["seeds"]]
            assert summary["mean"][name] == pytest.approx(np.mean(values))
            assert summary["std"][name] == pytest.approx(np.std(values, ddof=1))
    assert len({seed["test"]["f1"] for seed in scores["seeds"]}) > 1
    names = {"scores.json", "predictions.jsonl", "history.jsonl"}
    for seed, extra_names in ((4, set()), (5, {"config.json", "model.safetensors"})):
        assert {path.name for path in (result.folder / "seeds" / str(seed)).iterdir()} == names | extra_names
    # A seed of several is what it is alone.
    alone = finetune(session(tmp_path, "alone"), replace(request, seeds=(5,)))
    assert read_described(alone.folder / SCORES)["seeds"] == scores["seeds"][1:2]


@pytest.mark.slow
def test_a_finished_seed_is_not_trained_again(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ner_request(tmp_path, adapted(tiny_model), seeds=(0, 1))
    whole = finetune(session(tmp_path, "whole"), request)
    trained: list[int] = []
    train = FinetuneRun.train

    def watched(self: FinetuneRun, later: int) -> None:
        trained.append(self.seed)
        train(self, later)
        if trained == [0, 1]:  # the second seed has been trained, but is not finished
            raise InterruptedError

    monkeypatch.setattr(FinetuneRun, "train", watched)
    with pytest.raises(InterruptedError):
        finetune(session(tmp_path), request)
    [work] = tmp_path.glob(".run-*")
    assert (work / "seeds/0/scores.json").is_file()
    assert not (work / "seeds/1/scores.json").exists()
    assert not (tmp_path / "run").exists()
    # As a kill just after the scores were written leaves it.
    for name in (".state.safetensors", ".state.safetensors.part", ".best-1.safetensors"):
        (work / "seeds/0" / name).write_bytes(b"")
    notes = Notes()
    result = finetune(noted(tmp_path, notes), request)
    assert trained == [0, 1, 1]
    assert [note for note in notes.notes if "resuming" in note] == ["seed 1: resuming from step 15"]
    names = {name for name in whole.manifest.files if name.endswith((".safetensors", "predictions.jsonl"))}
    assert len(names) == 5
    for name in (*names, "scores.json"):
        assert result.manifest.files[name] == whole.manifest.files[name], name
    assert set(result.manifest.files) == set(whole.manifest.files)
    assert result.manifest.cost["attempts"] == 2


def _broken(tmp_path: Path, name: str, content: str) -> str:
    (tmp_path / name).write_text(content, "utf-8")
    return str(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("o.tsv", "a\tO\nb\tO\n", "no word of 1 training sentences is part of an entity"),
        ("blank.tsv", "\n\n", r"--train \S*blank.tsv has no examples"),
        ("one.jsonl", '{"text": "a", "label": 1}\n' * 3, "all 3 training examples have the same label, 1"),
    ],
)
def test_training_files_that_are_refused(
    tiny_model: TinyModel, tmp_path: Path, name: str, content: str, message: str
) -> None:
    kind = "ner" if name.endswith(".tsv") else "classification"
    source = _broken(tmp_path, name, content)
    request = FinetuneRequest.of_one(str(tiny_model()), (source,), task=replace(SHORT, task=kind))
    with pytest.raises(InputError, match=message):
        finetune(session(tmp_path), request)
    assert not (tmp_path / "run").exists()
