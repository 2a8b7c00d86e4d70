import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from greenadapt.config import TableFormat, TaskConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.entries import Entry, EntryFormat, group_entries, read_entries
from greenadapt.progress import Silent
from greenadapt.tasks.base import make_task
from greenadapt.tasks.classification import ClassificationTask, Text

NER, TEXTS, QA = (make_task(TaskConfig(task=name)) for name in ("ner", "classification", "qa"))


def write(path: Path, content: str) -> str:
    if path.suffix.lower() == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content, "utf-8")
    return str(path)


def read(task: Any, source: str, kind: EntryFormat | None = None) -> list[Entry]:
    return list(read_entries(task, source, kind, Silent()))


def test_every_line_of_text_is_an_entry(tmp_path: Path) -> None:
    entries = read(TEXTS, write(tmp_path / "a.txt", "one\n\ntwo \u200b\u2028x\r\nlast"))
    assert [(entry.line, entry.id, entry.example.text) for entry in entries] == [
        (1, None, "one"), (2, None, ""), (3, None, "two \u200b\u2028x"), (4, None, "last")
    ]  # fmt: skip


def test_objects_keep_their_ids_and_lines(tmp_path: Path) -> None:
    rows = [{"id": 7, "tokens": ["a", "b"]}, {"id": "x", "text": "heart rate"}, {"text": "\ud800"}]
    entries = read(NER, write(tmp_path / "a.jsonl.gz", "\n\n".join(map(json.dumps, rows)) + "\n"))
    assert [(entry.line, entry.id, entry.example.words) for entry in entries] == [
        (1, 7, ("a", "b")), (3, "x", ("heart", "rate")), (5, None, ("\ufffd",))
    ]  # fmt: skip


def test_a_table_is_read_with_the_columns_of_training(tmp_path: Path) -> None:
    rows = [["7", "heart, lung", 'a "b"\nc', ""], ["", "d", "e", "x"]]
    with open(tmp_path / "pairs.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "first", "second", "label"], *rows])
    pairs = ClassificationTask(("first", "second"), labels=("x", "y"))
    assert [(entry.id, entry.line, entry.example) for entry in read(pairs, f"{tmp_path}/pairs.csv")] == [
        ("7", 2, Text("heart, lung", 'a "b"\nc')), (None, 4, Text("d", "e"))
    ]  # fmt: skip
    path = write(tmp_path / "without.tsv.gz", "1\tthe heart\n")
    table = ClassificationTask(table=TableFormat(("number", "text")), labels=("x", "y"))
    assert [entry.example.text for entry in read(table, path)] == ["the heart"]
    path = write(tmp_path / "questions.csv", "question,context\nWhat?,the heart\n")
    assert [entry.example.context for entry in read(QA, path)] == ["the heart"]
    path = write(tmp_path / "other.csv", "abstract,label\na,x\n")
    with pytest.raises(InputError, match=r"other\.csv:2 has no field text, it has: abstract, label: name it as in"):
        read(TEXTS, path)
    with pytest.raises(UsageError, match=r"other\.csv is a table by its name.* give JSON lines, or --format conll"):
        read(NER, path)


def test_one_json_array(tmp_path: Path) -> None:
    rows = [{"id": i, "text": f"heart {i}", "question": f"what {i}", "context": "x"} for i in (3, 1)]
    entries = read(QA, write(tmp_path / "rows.json", json.dumps(rows, indent=1)))
    assert [(entry.line, str(entry.id)) for entry in entries] == [(None, "3"), (None, "1")]
    assert [entry.example for entry in entries] == [QA.example(row, "") for row in rows]


def test_a_truncated_file_and_none(tmp_path: Path) -> None:
    lines = "".join(f"line {i} {i * 7919 % 997}\n" for i in range(3000))
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(lines.encode())[:-500])
    entries = read_entries(TEXTS, str(tmp_path / "t.txt.gz"), None, Silent())
    with pytest.raises(InputError, match=r"t\.txt\.gz is truncated or damaged"):
        list(group_entries(entries))
    with pytest.raises(MissingError, match="does not exist"):
        read(TEXTS, str(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="is text, not a JSON object"):
        read(QA, write(tmp_path / "q.txt", "What?\n"))
