"""Files that name several tasks: what they say, and what is wrong with them in words."""

from pathlib import Path

import pytest

from greenadapt.config import TableFormat, TaskConfig
from greenadapt.errors import GreenadaptError, InputError, MissingError
from greenadapt.tasks.tasks_file import TaskEntry, read_tasks_file

DATA = ("train.tsv", "more.tsv", "dev.tsv", "test.tsv")
TASK = '[[task]]\nname = "a"\nkind = "ner"\ntrain = "train.tsv"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in DATA:
        (tmp_path / name).touch()
    (tmp_path / "data").mkdir()
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "tasks.toml"
    path.write_text(text, "utf-8")
    return path


def read(folder: Path, text: str) -> tuple[TaskEntry, ...]:
    return read_tasks_file(write(folder, text))


def test_everything_a_task_can_say(folder: Path) -> None:
    entries = read(
        folder,
        """
        [defaults]
        kind = "classification"
        max-length = 128
        quotes = false
        chunk = 12

        [[task]]
        name = "STS-B"
        train = ["train.tsv", "more.tsv"]
        dev = { m = "dev.tsv", mm = "more.tsv" }
        test = "test.tsv"
        text-field = ["first", "second"]
        label-field = "score"
        label-range = [0, 5.0]
        columns = ["first", "second", "score"]
        skip-broken = true
        metric = "pearson"

        [[task]]
        name = "sst.2"
        train = "nyu-mll/glue/sst2:train"
        text-field = "sentence"
        labels = "classes"
        quotes = true
        max-length = 64
        metric = "by_class.New.York.f1"

        [[task]]
        name = "ncbi_disease"
        kind = "ner"
        train = "train.tsv"
        gold-chunks = true
        x-class = true
        columns = ["_", "word", "tag", "_"]
        decoding = "viterbi"

        [[task]]
        name = "covid"
        kind = "qa"
        train = "https://host/train.json"
        negatives = 3
        """,
    )
    train, further, dev, test = (str(folder / name) for name in DATA)
    pair = TableFormat(("first", "second", "score"), quotes=False, skip_broken=True)
    sts = TaskConfig("classification", ("first", "second"), "score", label_range=(0.0, 5.0), table=pair, max_length=128)
    quoted = TableFormat(quotes=True)
    sst = TaskConfig("classification", ("sentence",), label_kind="classes", table=quoted, max_length=64)
    ner = TaskConfig(
        "ner",
        chunk=12,
        gold_chunks=True,
        x_class=True,
        decoding="viterbi",
        columns=("_", "word", "tag", "_"),
        max_length=128,
    )
    qa = TaskConfig("qa", negatives=3, max_length=128)
    assert entries == (
        TaskEntry("STS-B", sts, (train, further), {"m": dev, "mm": further}, {"test": test}, "pearson"),
        TaskEntry("sst.2", sst, ("nyu-mll/glue/sst2:train",), {}, {}, "by_class.New.York.f1"),
        TaskEntry("ncbi_disease", ner, (train,), {}, {}, None),
        TaskEntry("covid", qa, ("https://host/train.json",), {}, {}, None),
    )


def test_entities_are_read_as_by_finetune_of_one_task_unless_the_file_or_the_preset_says_otherwise(
    folder: Path,
) -> None:
    for text, chunk, automatic in (
        (TASK, None, ("chunk", "decoding")),
        (f"{TASK}chunk = 9", 9, ("decoding",)),
        (f"[defaults]\nchunk = 9\n{TASK}decoding = 'viterbi'", 9, ()),
    ):
        [entry] = read(folder, text)
        assert (entry.config.chunk, entry.config.decoding, entry.automatic) == (chunk, "viterbi", automatic)
    read(folder, TASK)
    [entry] = read_tasks_file(folder / "tasks.toml", is_paper=True)
    assert (entry.config.chunk, entry.config.decoding, entry.automatic) == (30, "argmax", ())


def test_paths_are_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subfolder = folder / "other"
    subfolder.mkdir()
    monkeypatch.chdir(folder)
    path = write(subfolder, TASK.replace("train.tsv", "../train.tsv"))
    (entry,) = read_tasks_file(path.relative_to(folder))
    assert Path(entry.train[0]).resolve() == folder / "train.tsv"
    with pytest.raises(MissingError, match=r"task a: train file other/train\.tsv does not exist: .*relative to other$"):
        read_tasks_file(write(subfolder, TASK).relative_to(folder))
    (entry,) = read_tasks_file(write(subfolder, TASK.replace("train.tsv", str(folder / "train.tsv"))))
    assert entry.train == (str(folder / "train.tsv"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[tasks]]\n", "tasks.toml: unknown key 'tasks': the keys are defaults, task"),
        ('[[task]]\nname = "a\n', "tasks.toml is not TOML (Illegal character '\\n' (at line 2, column 10))"),
        (TASK + TASK.replace('"a"', '"A"'), "tasks.toml: 2 tasks are named a: give each a different name"),
        (TASK.replace('"a"', '"../a"'), "tasks.toml: the name of task number 1 is '../a': use letters"),
        (f"{TASK}chunk = 'a'", "tasks.toml, task a: chunk is 'a', must be a valid"),
        (f"{TASK}epochs = 3", "task a: unknown key 'epochs': the keys are name, kind, train, dev, test, metric, text-"),
        (f"{TASK}text-field = 'x'", "task a: text-field is for classification, this is ner: leave text-field out"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, text: str, message: str) -> None:
    with pytest.raises(GreenadaptError) as caught:
        read(folder, text)
    assert message.format(folder=folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError | MissingError)
