"""Prediction from task folders, against plain transformers; what is streamed, averaged and refused."""

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner, Result

import greenadapt
from greenadapt.checkpoints.layout import MULTITASK_FILE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.cli import app
from greenadapt.config import AdapterConfig, ReadingOptions
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.predictor import PredictionRequest
from greenadapt.models.adapters.multitask import head_spec, open_multitask
from greenadapt.models.rows import Rows
from greenadapt.models.weights import trained_table
from greenadapt.progress import Silent
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.tasks.conll import entities, split_text
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tokenization.export import copy_tokenizers
from tests.conftest import json_lines
from tests.support.endless import Endless
from tests.support.predictions import assert_alike, predict
from tests.support.small_multitask import write_multitask
from tests.support.small_tasks import Json, TinyModel, expand

NER = NerTask(("O", "B-Disease", "I-Disease", "B-Gene", "I-Gene"))
TEXTS = ClassificationTask(label_kind="classes", labels=("negative", "neutral", "positive"))
QA = QuestionTask()
SENTENCES = [
    "the patient with tachycardia was isolated",
    "coronavirus",
    "a heart rate of 72 in the cell sample , and the protein is not isolated from the virus",
    "dtypes of array ( x )",
]


def write_task(folder: Path, task: Any, **settings: Any) -> Path:
    (folder / "task.json").write_text(json.dumps({**task.settings(), "pool": "mean", "mix": "sample", **settings}))
    return folder


@pytest.fixture
def make(tiny_model: TinyModel, tmp_path: Path) -> Callable[..., Path]:
    """``make(NER)`` → a task folder of an expanded tiny model with random weights, large enough to tell apart."""

    def build(task: Any, name: str = "task", *, is_expanded: bool = True, seed: int = 0, **settings: Any) -> Path:
        sizes = {"initializer_range": 0.5 + 0.1 * seed, **task.head_config()}
        if is_expanded:
            plain = tiny_model(f"BertFor{task.head}", name=f"{name}-base", **sizes)
            return write_task(expand(plain, tmp_path / name), task, **settings)
        return write_task(tiny_model(f"BertFor{task.head}", name=name, **sizes), task, **settings)

    return build


def results(*folders: Path, source: Path, **options: Any) -> list[Json]:
    arguments = {name: options.pop(name) for name in ("format", "tasks", "ensemble") if name in options}
    request = PredictionRequest(tuple(map(str, folders)), str(source), reading=ReadingOptions(**options), **arguments)
    return [prediction.row(tags=True) for prediction in predict(request, Silent())]


def text_file(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def plain_model(folder: Path, head: str, tokenizer: str = "base_tokenizer") -> Callable[..., torch.Tensor]:
    """Logits by plain transformers, (n, k) or (k,)."""
    model = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder).eval()
    encode = transformers.AutoTokenizer.from_pretrained(folder / tokenizer)

    def run(*parts: Any, **options: Any) -> tuple[Any, Any]:
        inputs = encode(*parts, return_tensors="pt", padding=False, truncation=False, **options)
        with torch.no_grad():
            return inputs, model(**inputs)

    return run


def plain_words(folder: Path, sentence: str, tokenizer: str = "base_tokenizer") -> np.ndarray:
    """(n_words, k): the logits of each word's first piece."""
    inputs, output = plain_model(folder, "TokenClassification", tokenizer)(sentence.split(), is_split_into_words=True)
    words = inputs.word_ids()
    first = [i for i, word in enumerate(words) if word is not None and word not in words[:i]]
    return output.logits[0, first].numpy()


@pytest.mark.slow
def test_entities_are_those_of_plain_transformers(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, source = make(NER), text_file(tmp_path / "text.txt", SENTENCES)
    predictions = results(folder, source=source, margin=1.0)
    assert [row["line"] for row in predictions] == [1, 2, 3, 4]
    assert any(row["entities"] for row in predictions)
    for row, sentence in zip(predictions, SENTENCES, strict=True):
        logits = (plain_words(folder, sentence, "base_tokenizer") + plain_words(folder, sentence, "")) / 2
        shares = torch.softmax(torch.from_numpy(logits), -1).numpy()
        labels = [NER.labels[i] for i in logits.argmax(-1)]
        assert [tag[2:] for tag in row["tags"]] == [label[2:] for label in labels]
        for entity in row["entities"]:
            assert sentence[entity["start"] : entity["end"]] == entity["text"]
            assert entity["text"].split() == sentence.split()[entity["first"] : entity["last"] + 1]
            score = shares[entity["first"] : entity["last"] + 1].max(-1).mean()
            assert entity["score"] == pytest.approx(score, abs=1e-5)


@pytest.mark.slow
def test_classes_and_the_mean_of_several_models(make: Callable[..., Path], tmp_path: Path) -> None:
    folders = [make(TEXTS, "one"), make(TEXTS, "two", seed=1)]
    source = text_file(tmp_path / "text.txt", SENTENCES)
    runs = [plain_model(folder, "SequenceClassification") for folder in folders]
    logits = torch.stack([torch.stack([run(sentence)[1].logits[0] for sentence in SENTENCES]) for run in runs])
    alone = results(folders[0], source=source, pool="base")
    by_logits, by_shares = (
        results(*folders, source=source, pool="base", ensemble=rule) for rule in (None, "probabilities")
    )
    shares = logits.softmax(-1)
    means = shares[0], logits.mean(0).softmax(-1), shares.mean(0)
    for rows, expected in zip((alone, by_logits, by_shares), (mean.tolist() for mean in means), strict=True):
        for row, probabilities in zip(rows, expected, strict=True):
            assert list(row["probabilities"].values()) == pytest.approx(probabilities, abs=1e-5)
            assert row["label"] == TEXTS.labels[int(np.argmax(probabilities))]
    assert (logits[0] - logits[1]).abs().max() > 0.1


def test_answers(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, context = make(QA), "the heart rate of a patient with virus"  # each word is one piece
    rows = [{"id": 9, "question": "what rate", "context": context}, {"question": "of a", "context": context}]
    source = tmp_path / "questions.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)))
    answers = results(folder, source=source, pool="base")
    run = plain_model(folder, "QuestionAnswering")
    for row, record in zip(answers, rows, strict=True):
        inputs, output = run(record["question"], context)
        begin = int(inputs["token_type_ids"][0].argmax())
        start, end = (output[name][0, begin:-1] for name in ("start_logits", "end_logits"))
        sums = torch.triu(start[:, None] + end) + torch.tril(torch.full((len(start),) * 2, -torch.inf), -1)
        assert row["logit"] == pytest.approx(float(sums.max()), abs=1e-4)
        first, last = divmod(int(sums.argmax()), len(start))
        assert row["answer"] == " ".join(context.split()[first : last + 1]) == context[row["start"] : row["end"]]
    assert [(row["line"], row.get("id")) for row in answers] == [(1, 9), (2, None)]


@pytest.mark.slow
def test_several_models_answer_together(make: Callable[..., Path], tmp_path: Path) -> None:
    folders = [make(QA, "one"), make(QA, "two", is_expanded=False, seed=1)]
    row = {"question": "what rate", "context": "the heart rate of a patient with tachycardia"}
    source = text_file(tmp_path / "q.jsonl", [json.dumps(row)])
    ((first,), (second,), (mean,)) = (results(*used, source=source) for used in (folders[:1], folders[1:], folders))
    assert mean["logit"] not in (first["logit"], second["logit"])
    assert row["context"][mean["start"] : mean["end"]] == mean["answer"]
    error = run("-m", folders[0], "--ensemble", "logits", stdin=b"heart\n", code=2).stderr
    assert "--ensemble logits needs several models, there is one: give each with" in error


@pytest.mark.slow
def test_what_was_cut_is_said_once(make: Callable[..., Path], tmp_path: Path) -> None:
    source = text_file(tmp_path / "text.txt", ["virus " * 20, "heart", *["cell " * 20] * 40])
    folder = make(TEXTS, is_expanded=False, max_length=16)
    errors = run("-m", folder, "-m", folder, "-i", source).stderr
    assert errors.count("were cut") == 1
    assert "warning: 41 of the examples are longer than the model reads at once, and were cut" in errors


@pytest.mark.slow
def test_the_order_and_every_line_are_kept(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, draw = make(NER, is_expanded=False), np.random.default_rng(0)
    words = ["heart", "virus", "patient", "", "\u200b", "Ünïcode\u200b", "x" * 300, "\u00a0"]
    lines = [" ".join(draw.choice(words, draw.integers(0, 70))) for _ in range(40)]
    lines[3], lines[7], lines[9] = "", "\u200b \u200b", "   "
    together = results(folder, source=text_file(tmp_path / "all.txt", lines))
    assert [len(row["tags"]) for row in together] == [len(line.split()) for line in lines]
    assert [row["line"] for row in together] == list(range(1, 41))
    for number in (3, 20):
        (alone,) = results(folder, source=text_file(tmp_path / "one.txt", [lines[number]]), max_tokens=64)
        assert alone["tags"] == together[number]["tags"]
    assert results(folder, folder, source=tmp_path / "all.txt")[3]["tags"] == []


def test_the_first_rows_are_out_before_the_end(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Endless("heart")
    monkeypatch.setattr("sys.stdin", pipe.as_stdin())
    rows = predict(PredictionRequest((str(make(TEXTS, is_expanded=False)),)), Silent())
    assert next(rows).row()["line"] == 1
    assert pipe.taken <= 1024


def test_ctrl_c_in_a_block_leaves_the_rows_before(
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, n_decoded = ClassificationTask.decode, iter(range(1, 100))

    def interrupted(task: ClassificationTask, example: Any, logits: Any) -> Json:
        if next(n_decoded) == 40:
            raise KeyboardInterrupt
        return decode(task, example, logits)

    monkeypatch.setattr(ClassificationTask, "decode", interrupted)
    monkeypatch.chdir(tmp_path)
    lines = text_file(tmp_path / "texts.txt", ["heart"] * 90).read_text()
    arguments = ["predict", "-m", str(make(TEXTS, is_expanded=False))]
    result = CliRunner().invoke(app, arguments, input=lines)
    assert result.exit_code == 130
    assert [json.loads(line)["line"] for line in result.stdout.splitlines()] == [*range(1, 40)]
    n_decoded = iter(range(1, 100))
    assert CliRunner().invoke(app, [*arguments, "-o", "out.jsonl"], input=lines).exit_code == 130
    assert not (tmp_path / "out.jsonl").exists()  # a file appears when it is complete


def test_what_is_refused(make: Callable[..., Path], tiny_model: TinyModel, tmp_path: Path) -> None:
    ner, texts, text = make(NER), make(TEXTS, "texts"), text_file(tmp_path / "text.txt", SENTENCES)
    with pytest.raises(InputError, match=r"task is for ner, .*texts for classification: give models of one task"):
        results(ner, texts, source=text)
    different = make(replace(TEXTS, labels=("bad", "good")), "other")
    with pytest.raises(InputError, match=r"has the labels negative, neutral, positive, .*other has bad, good"):
        results(texts, different, source=text)
    with pytest.raises(InputError, match=r"labels O, B-.*I-Gene, .*has O, B-.*I-Gene, X"):
        results(ner, make(replace(NER, x_class=True), "x"), source=text)


def run(*arguments: object, code: int = 0, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)], input=stdin)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


@pytest.mark.slow
def test_the_command(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, packed = make(NER), tmp_path / "text.txt.gz"
    content = "\n".join([*SENTENCES, "", "é\t\u200b x"]).encode()
    packed.write_bytes(gzip.compress(content))
    out = run("--model", folder, "--input", packed, "--json").stdout
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(row.keys() == {"line", "text", "entities", "score"} for row in rows)
    least = run("-m", folder, "-i", packed, "--least-certain", 2).stdout.splitlines()
    assert [json.loads(line) for line in least] == sorted(rows, key=lambda row: float(row["score"]))[:2]
    assert run("-m", folder, "-i", packed, "--least-certain", 2, "--bio").stdout.count("\n\n") == 2
    without_text = json_lines(run("-m", folder, "-i", packed, "--no-text"))
    assert without_text == [{name: value for name, value in row.items() if name != "text"} for row in rows]
    run("-m", folder, "-i", packed, "--no-text", "--spans", code=2)
    assert run("-m", folder, stdin=content).stdout == out
    assert run("-m", folder, "-i", packed, "-o", tmp_path / "rows.jsonl").stdout == ""
    assert (tmp_path / "rows.jsonl").read_text("utf-8") == out
    run("-m", folder, "-i", packed, "-o", tmp_path / "rows.jsonl.gz")
    assert gzip.decompress((tmp_path / "rows.jsonl.gz").read_bytes()).decode() == out
    tagged = greenadapt.load(folder).predict(packed, tags=True)
    assert tagged[1]["words"] == ("coronavirus",)
    bio = run("-m", folder, "-i", packed, "--bio").stdout.split("\n\n")
    assert [line.split("\t") for line in bio[0].split("\n")] == [
        list(pair) for pair in zip(tagged[0]["words"], tagged[0]["tags"], strict=True)
    ]


CONLL = (
    "-DOCSTART- -X- O\n\nthe\tO\nNew York\tB-X\n\u00a0\tO\n\n\ncoronavirus\tO\ncell\tB-X\r\nE\u0301t\u00e9\tO\nvirus O"
)


@pytest.mark.slow
def test_words_of_columns_are_those_that_go_out(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, source = make(NER), tmp_path / "test.tsv"
    words = [["the", "New York", "\u00a0"], ["coronavirus", "cell", "E\u0301t\u00e9", "virus"]]
    source.write_bytes(CONLL.encode())
    bio = run("-m", folder, "-i", source, "--format", "conll", "--bio").stdout
    lines = [[line.split("\t") for line in part.split("\n")] for part in bio.removesuffix("\n\n").split("\n\n")]
    assert [[word for word, _ in part] for part in lines] == words
    rows = json_lines(run("-m", folder, "-i", source, "--format", "conll"))
    assert [row["line"] for row in rows] == [3, 8]
    named = text_file(tmp_path / "again.conll", bio.removesuffix("\n").split("\n"))
    assert run("-m", folder, "-i", named, "--bio").stdout == bio


@pytest.mark.slow
def test_columns_that_are_refused(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, out = make(NER), tmp_path / "a.bio"
    lines = "".join(json.dumps({"tokens": words}) + "\n" for words in (["the", "cell"], ["virus", "a\tb"]))
    failed = run("-m", folder, "--bio", "--format", "jsonl", "-o", out, stdin=lines.encode(), code=1)
    assert "standard input:2: token 2 is 'a\\tb', which would break its line: leave out --bio" in failed.stderr
    assert not out.exists()
    (tmp_path / "a.tsv").write_text("the\tO\n", "utf-8")
    error = run("-m", folder, "-i", tmp_path / "a.tsv", code=2).stderr
    assert "give JSON lines, or --format conll if its first column has words" in error


@pytest.mark.slow
def test_predictions_that_are_corrected_are_learnt_from(make: Callable[..., Path], tmp_path: Path) -> None:
    """The entities that finetune reads are those of the corrected lines."""
    text = text_file(tmp_path / "text.txt", [*SENTENCES, "a heart-rate (tachycardia), \u00e9t\u00e9 \U0001f9a0 virus"])
    folder = make(replace(NER, split="punctuation"))
    rows = greenadapt.load(folder).predict(text)
    predicted = [[(entity["start"], entity["end"], entity["type"]) for entity in row["entities"]] for row in rows]
    assert [row["text"] for row in rows] == text.read_text("utf-8").splitlines()
    last = rows[-1]["text"].index("virus")
    rows[-1]["entities"] = [{"start": last, "end": last + 5, "type": "Disease"}]
    predicted[-1] = [(last, last + 5, "Disease")]
    source = text_file(tmp_path / "train.jsonl", [json.dumps(row) for row in rows])
    read = NerTask().read(str(source), Silent())
    places = [split_text(row["text"], "punctuation").spans or () for row in rows]
    found = [
        [(spans[entity.first][0], spans[entity.last][1], entity.type) for entity in entities(sentence.tags or ())]
        for spans, sentence in zip(places, read, strict=True)
    ]
    assert found == predicted
    spans = [json.loads(line) for line in run("-m", folder, "-i", text, "--spans").stdout.splitlines()]
    assert [[tuple(span) for span in row["label"]] for row in spans][:-1] == predicted[:-1]
    assert [row["text"] for row in spans] == [row["text"] for row in rows]


@pytest.mark.slow
def test_the_columns_of_training_are_those_of_evaluation_and_prediction(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    """Also where a file has the words in another column than the program would take."""
    folder, source = make(replace(NER, columns=("tag", "number", "word"))), tmp_path / "a.conll"
    source.write_text("B-Gene\t1\tthe\nO\t2\tcell\n", "utf-8")
    assert run("-m", folder, "-i", source, "--bio").stdout.split()[::2] == ["the", "cell"]
    scored = CliRunner().invoke(app, ["evaluate", "-m", str(folder), "--test", str(source), "--json"])
    assert json.loads(scored.stdout)["seeds"][0]["test"]["support"] == 1
    counted = text_file(tmp_path / "b.conll", ["# id 1\n1\tthe\tO\t-\tann\n2\tvirus\tB-Disease\t-\tann\n"])
    error = run("-m", folder, "-i", counted, code=1).stderr
    assert "b.conll, line 2: 5 columns, --columns names 3" in error
    read = run("-m", folder, "-i", counted, "--columns", "_,word,tag,_,_", "--bio")
    assert read.stdout.split()[::2] == ["the", "virus"]
    error = run("-m", folder, "--columns", "word,tag", stdin=b"a", code=2).stderr
    assert "--columns is for CoNLL columns, this is read as text" in error


def test_a_broken_line_ends_it_after_the_rows_before(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, out = make(TEXTS, is_expanded=False), tmp_path / "rows.jsonl"
    lines = b'{"text": "a", "id": "x"}\n{"text": "b"}\n{"text" "c"}\n'
    failed = run("-m", folder, "--format", "jsonl", stdin=lines, code=1)
    assert [json.loads(line)["line"] for line in failed.stdout.splitlines()] == [1, 2]
    assert "greenadapt: standard input, line 3, column 9 is not JSON" in failed.stderr
    run("-m", folder, "--format", "jsonl", "-o", out, stdin=lines, code=1)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_wrong_usage(make: Callable[..., Path], tmp_path: Path) -> None:
    folder, text = make(TEXTS, is_expanded=False), text_file(tmp_path / "text.txt", SENTENCES)
    error = run("-m", folder, "-i", text, "--bio", code=2).stderr
    assert "--bio is for NER, the model is for classification" in error
    assert "is a folder" in run("-m", folder, "-i", text, "-o", tmp_path, code=1).stderr
    assert "text.txt exists" in run("-m", folder, "-i", text, "-o", text, code=1).stderr
    (folder / "model.safetensors").unlink()  # what is missing is said before the model is loaded
    assert "none.txt does not exist" in run("-m", folder, "-i", tmp_path / "none.txt", code=1).stderr
    assert "does not exist" in run("-m", folder, "-i", text, "-o", tmp_path / "no" / "x", code=1).stderr
    run("-i", text, code=2)


TOP = AdapterConfig("pals", size=8, layers="top")
SEVERAL = {"diseases": NER, "mood": TEXTS, "asked": QA, "answered": QA}


@pytest.fixture
def several(tiny_model: TinyModel, tmp_path: Path) -> Path:
    """A folder with four tasks on an expanded tiny model, whose weights all differ from where they began."""
    source = Checkpoint(expand(tiny_model(name="several-base", initializer_range=0.5), tmp_path / "several-start"))
    folder, rows = tmp_path / "several", Rows.all(source.n_rows)
    heads = {name: head_spec(task, TOP) for name, task in SEVERAL.items()}
    model = open_multitask(source, heads, rows, seed=0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parts.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=draw)
    write_multitask(model, trained_table(model.encoder, rows, source), folder)
    copy_tokenizers(source.folder, folder)
    (folder / MULTITASK_FILE).write_text(json.dumps({"pool": "mean", "mix": "sample", "tasks": list(SEVERAL)}))
    for name, task in SEVERAL.items():
        pool = "expanded" if name == "mood" else "mean"  # each task is read as it was trained
        settings = {**task.settings(), "adapter": asdict(TOP), "metric": task.main, "max_length": 64, "pool": pool}
        (folder / "tasks" / name / "task.json").write_text(json.dumps(settings))
    return folder


def test_tasks_together_say_what_each_says_alone(several: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    words = [*SENTENCES[0].split(), "coronavirus", "dtypes", ",", "eigenvalues"]
    texts = [*SENTENCES, "", *(" ".join(draw.choice(words, n)) for n in draw.integers(1, 50, 10))]
    source = text_file(tmp_path / "text.txt", texts)
    names = ("mood", "diseases")
    together = results(several, source=source, tasks=names)
    assert [row["line"] for row in together] == list(range(1, 16))
    assert all(list(row) == ["line", "tasks"] and tuple(row["tasks"]) == names for row in together)
    alone = {name: results(several, source=source, tasks=(name,)) for name in names}
    for number, row in enumerate(together):
        for name in names:
            assert_alike({"line": row["line"], **row["tasks"][name]}, alone[name][number])
    assert any(row["entities"] for row in alone["diseases"])
    assert len({row["label"] for row in alone["mood"]}) > 1


def test_tasks_that_are_refused(several: Path, tmp_path: Path) -> None:
    source = text_file(tmp_path / "text.txt", SENTENCES)
    with pytest.raises(MissingError, match=r"has no task 'moods': it has diseases, mood, asked, answered"):
        results(several, source=source, tasks=("diseases", "moods"))
    with pytest.raises(UsageError, match="2 models and 2 tasks: several models answer together for one task"):
        results(several, several, source=source, tasks=("mood", "diseases"))
    with pytest.raises(UsageError, match=r"has 4 tasks on one encoder .*: name one with --task"):
        results(several, source=source)
    error = run("-m", several, "-i", source, "--task", "mood,diseases", "--bio", code=2).stderr
    assert "--bio is for one task, --task has 2: leave out --bio, or name one task" in error
