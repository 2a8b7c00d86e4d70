"""Published test tables of GLUE, and submissions to its leaderboard."""

import csv
from pathlib import Path
from typing import Any

import pytest

from greenadapt.config import TaskConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.entries import GLUE_HEADER, Entry, glue_line, read_glue_entries
from greenadapt.progress import Silent
from greenadapt.tasks.base import make_task
from greenadapt.tasks.classification import ClassificationTask, Text


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    return str(path)


def read(task: Any, source: str) -> list[Entry]:
    return list(read_glue_entries(task, source, Silent()))


@pytest.mark.parametrize(
    ("fields", "content", "expected"),
    [
        # CoLA's test table has a header, its others have none.
        (
            ("sentence",),
            'index\tsentence\n0\tBill whistled past the house.\n1\t"Who is it?", asked\n',
            [Text("Bill whistled past the house."), Text('"Who is it?", asked')],
        ),
        (
            ("#1 String", "#2 String"),
            "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
            '0\t1089874\t1089925\tPCCW \'s chief, "Mike" Butcher\tCurrent Chief " Officer\n',
            [Text('PCCW \'s chief, "Mike" Butcher', 'Current Chief " Officer')],
        ),
        (
            ("question1", "question2"),
            "id\tquestion1\tquestion2\n0\tWould the idea of Trump?\t\n1\ta\tb\n",
            [Text("Would the idea of Trump?", ""), Text("a", "b")],
        ),
    ],
)
def test_tables_as_they_are_published(
    tmp_path: Path, fields: tuple[str, ...], content: str, expected: list[Text]
) -> None:
    task = ClassificationTask(fields, label_kind="classes", labels=("0", "1"))
    entries = read(task, write(tmp_path / "test.tsv", content))
    assert [entry.example for entry in entries] == expected
    assert [(entry.id, entry.line) for entry in entries] == [(i, None) for i in range(len(expected))]
    assert entries[0].size == sum(len(part or "") for part in (expected[0].text, expected[0].second))


def test_nothing_is_left_out(tmp_path: Path) -> None:
    """The leaderboard wants a prediction for every row, and the training files' own format is not that of the test."""
    config = TaskConfig("classification", ("sentence",), table=None)
    task = ClassificationTask.of(config)
    path = write(tmp_path / "test.tsv", "index\tsentence\n0\ta\n1\tb\tc\n")
    with pytest.raises(InputError, match=r"test\.tsv:3 has 3 columns, the header 2"):
        read(task, path)
    path = write(tmp_path / "test.tsv", "index\ttext\n0\ta\n")
    with pytest.raises(InputError, match=r"test\.tsv:2 has no field sentence, it has: index, text"):
        read(task, path)
    with pytest.raises(MissingError, match="does not exist"):
        read(task, str(tmp_path / "no.tsv"))


def test_what_has_no_place_on_the_leaderboard(tmp_path: Path) -> None:
    path = write(tmp_path / "test.tsv", "index\tsentence\n0\ta\n")
    for kind in ("ner", "qa"):
        with pytest.raises(UsageError, match=f"--glue is for classification, the model is for {kind}: leave out"):
            read(make_task(TaskConfig(kind)), path)
    with pytest.raises(UsageError, match="is read from a file: name it with --input"):
        read(make_task(TaskConfig("classification")), "-")


def test_a_submission(tmp_path: Path) -> None:
    predictions = [{"label": "not_entailment", "score": 0.9}, {"label": "entailment", "score": 0.6}]
    lines = [GLUE_HEADER, *(glue_line(i, prediction) for i, prediction in enumerate(predictions))]
    path = Path(write(tmp_path / "RTE.tsv", "\n".join(lines) + "\n"))
    with open(path, newline="") as file:
        assert list(csv.DictReader(file, delimiter="\t")) == [
            {"index": "0", "prediction": "not_entailment"},
            {"index": "1", "prediction": "entailment"},
        ]
    assert glue_line(7, {"value": 3.80049}) == "7\t3.800"
    assert glue_line(8, {"value": 5.0}) == "8\t5.000"
    assert glue_line(0, {"label": "1"}) == "0\t1"
