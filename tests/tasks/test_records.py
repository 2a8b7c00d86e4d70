"""Rows of labelled examples from files of several kinds, compressed or not, and from the hub."""

import csv
import gzip
import io
import json
import lzma
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenadapt.config import TableFormat
from greenadapt.corpus.opening import is_hub_id
from greenadapt.errors import InputError, MissingError
from greenadapt.progress import Silent
from greenadapt.tasks.records import records
from tests.conftest import Notes

ROWS = [{"text": "a \u2028 “b”,\tc", "label": "x"}, {"text": 'two\nlines "q"', "label": "y"}]


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read(path: str, **table: Any) -> list[tuple[str, dict[str, Any]]]:
    return list(records(path, Silent(), TableFormat(**table) if table else None))


def table(rows: list[dict[str, str]], dialect: str) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), dialect=dialect)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("a.txt", "\r\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.csv", table(ROWS, "excel")),
        ("A.TSV", "\ufeff" + table(ROWS, "excel-tab")),
    ],
)
def test_the_same_rows_from_every_kind_of_file(tmp_path: Path, name: str, content: str) -> None:
    assert [row for _, row in read(write(tmp_path / f"{name}.xz", lzma.compress(content.encode())))] == ROWS


@given(st.lists(st.fixed_dictionaries({"a": st.text("x,\t\"'\n\r ", max_size=6), "b": st.text("y\"'", min_size=1)})))
def test_whatever_csv_writes_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("tables")
    for name, dialect in (("a.csv", "excel"), ("a.tsv", "excel-tab")):
        if dialect == "excel-tab":  # the lines of a cell with tabs may be rows themselves
            rows = [{**row, "a": row["a"].replace("\n", " ")} for row in rows]
        content = table([{"a": "first", "b": "one"}, *rows], dialect)
        path = write(folder / name, content)
        assert [row for _, row in read(path)][1:] == rows


STRAY = '1\tt1\t"alpha\n2\tt2\tbeta\n3\tt3\t"gamma\n4\tt4\tdelta\n'


@pytest.mark.parametrize(
    ("content", "third"),
    [
        (STRAY, ['"alpha', "beta", '"gamma', "delta"]),  # the second quotation mark is not at the end of a cell
        ('1\tt\t"alpha\n2\tt\tbeta\n', ['"alpha', "beta"]),  # never closed
        ('1\tt\tan "a"\n2\tt\t"c ""d"""\n', ['an "a"', 'c "d"']),
        ('1\tt\t"two\nlines"\n2\tt\t"a\ttab"\n', ["two\nlines", "a\ttab"]),
        ('1\tt\t"' + "x\n" * 600 + '"\n2\tt\t"b"\n', ["x\n" * 600, "b"]),  # longer than the sample
    ],
    ids=range(5),
)
def test_tsv_is_quoted_if_all_of_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, third: list[str]
) -> None:
    monkeypatch.setattr("greenadapt.corpus.rows._SAMPLE", 1000)
    path = write(tmp_path / "a.tsv", "id\ttitle\tabstract\n" + content)
    assert [row["abstract"] for _, row in read(path)] == third


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_with_another_separator(tmp_path: Path, separator: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL).writerow(["the text, whole", "label"])
    csv.writer(text, delimiter=separator).writerows([["a, b", "x"], [f"c{separator}d", "y"]])
    path = write(tmp_path / "a.csv", text.getvalue())
    assert [tuple(row.values()) for _, row in read(path)] == [("a, b", "x"), (f"c{separator}d", "y")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a" 2}\n', r"a\.jsonl, line 2, column 6 is not JSON \(Expecting ':' delimiter\)"),
        ("a.txt", "\n  some text\n", r"a\.txt, line 2, column 3 is 's', not the start of an object: give JSON lines"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", r"a\.csv:3 has 3 columns, the header 2: quote cells that hold"),
        ("a.csv", 'a,b\n1,"2\n3,4\n', r"a\.csv, line 2 is not CSV \(a quotation mark is never closed\)"),
        ("a.csv", "a,b,a\n1,2,3\n", r"a\.csv has several columns named a"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 999, mtime=0)[:-9], r"a\.jsonl\.gz is truncated or damaged"),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        read(path)


def test_a_table_without_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", '\ufeffgj04\t1\t\tOne more.\r\n\r\nbc01\t0\t*\t"Two, ""more""."')
    columns = ("source", "label", "note", "sentence")
    assert read(path, columns=columns) == [
        (f"{path}:1", {"source": "gj04", "label": "1", "note": "", "sentence": "One more."}),
        (f"{path}:3", {"source": "bc01", "label": "0", "note": "*", "sentence": 'Two, "more".'}),
    ]
    with pytest.raises(InputError, match=r"a\.tsv:1 has 4 columns, need 3: correct it"):
        read(path, columns=columns[:3])


def test_quotation_marks_that_are_text(tmp_path: Path) -> None:
    lines = ["one\ttwo", '"\t"a" b', '""\t c"d ', "\u2028\ta\x85b"]
    path = write(tmp_path / "a.tsv", "\n".join(lines) + "\n")
    with pytest.raises(
        InputError, match=r"a\.tsv, line 2 is not TSV .*: double .*, set quotes = false in a tasks file"
    ):
        read(path, quotes=True)
    assert [tuple(row.values()) for _, row in read(path)] == [tuple(line.split("\t")) for line in lines[1:]]


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\t\n\r", codec="utf-8"))] * 2), min_size=1))
@example([("", "NaN"), ("nan", "a")])
def test_unquoted_tables_are_pythons_own_without_quoting(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("tables") / "a.tsv"
    content = "".join(f"{a}\t{b}\n" for a, b in [("one", "two"), *rows])
    path.write_bytes(content.encode())
    if "\0" in content:
        return  # not text
    with open(path, encoding="utf-8", newline="\n") as file:
        expected = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    expected = [{name: "" if cell in ("NaN", "nan") else cell for name, cell in row.items()} for row in expected]
    assert [row for _, row in read(str(path), quotes=False)] == expected


def test_rows_that_are_broken_can_be_left_out(tmp_path: Path) -> None:
    rows = ["id\tq\tlabel", "1\ta\t0", "2\tb, that", "goes on\t1", "3\tc\t1\tmore", "4\td\t1"]
    path = write(tmp_path / "a.tsv", "\n".join(rows))
    with pytest.raises(
        InputError, match=r"a\.tsv:3 has 2 columns, the header 3: correct it, .* or set skip-broken = true in a tasks"
    ):
        read(path, quotes=False)
    notes = Notes()
    read_rows = list(records(path, notes, TableFormat(quotes=False, skip_broken=True)))
    assert [(where, row["id"]) for where, row in read_rows] == [(f"{path}:2", "1"), (f"{path}:6", "4")]
    assert notes.warnings == [f"{path}: left out 3 rows that do not have 3 columns, the first on line 3"]
    stray = write(tmp_path / "c.tsv", 'a\tb\n"x" y\t2\n')
    with pytest.raises(InputError, match="is not TSV"):  # nobody knows where the next row begins
        read(stray, quotes=True, skip_broken=True)


def test_a_missing_file(tmp_path: Path) -> None:
    for name in ("train.jsonl", "train.csv.gz", "a b", "a/b/c/d", "../x", "train"):
        with pytest.raises(MissingError, match="does not exist: check the path"):
            read(str(tmp_path / name))
    with pytest.raises(InputError, match="cannot be read"):
        read(str(tmp_path))


def test_an_id_without_the_hubs_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        MissingError,
        match=r'nosuch/thing does not exist, .*: pip install "greenadapt\[hub\]", or check the path',
    ):
        read("nosuch/thing")


def test_ids_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    sources = ("nyu-mll/glue/sst2:train[:10]", "there/fiel:train", "folder/train.jsonl", "there/file")
    assert [is_hub_id(source, tmp_path) for source in sources] == [True, True, False, False]


class ClassLabel:
    """What records() needs of the hub library's class."""

    def int2str(self, value: int) -> str:
        return ["no", "yes"][value]


class Table(list[dict[str, Any]]):
    features: ClassVar = {
        "label": ClassLabel(),
        "tags": SimpleNamespace(feature=ClassLabel()),
        "text": SimpleNamespace(),
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None, str | None]]:
    """A stand-in for the hub's library, which tests cannot reach; the calls it got."""
    calls = []

    def load_dataset(path: str, name: str | None, *, split: str | None) -> Any:
        calls.append((path, name, split))
        if path == "gl/nothing":
            raise FileNotFoundError("no gl/nothing on the hub")
        rows = Table([{"label": 1, "tags": [0, 1], "text": "t"}, {"label": -1, "tags": [], "text": ""}])
        if split == "none":
            raise ValueError('Unknown split "none".\nmore')
        return rows if split else {"train": rows, "test": rows} if path == "gl/ue" else {"all": rows}

    module = ModuleType("datasets")
    module.__dict__.update(load_dataset=load_dataset, __version__="4.2.0")
    monkeypatch.setitem(sys.modules, "datasets", module)
    return calls


def test_rows_of_the_hub(hub: list[tuple[str, str | None, str | None]]) -> None:
    rows = [
        ("owner/name/conf:train[:10]", ("owner/name", "conf", "train[:10]")),
        ("gl/ue/sst2:test", ("gl/ue", "sst2", "test")),
    ]
    for source, call in rows:
        assert read(source) == [
            (f"{source}, row 0", {"label": "yes", "tags": ["no", "yes"], "text": "t"}),
            (f"{source}, row 1", {"label": None, "tags": [], "text": ""}),
        ]
        assert hub[-1] == call


def test_what_the_hub_does_not_give(
    hub: list[tuple[str, str | None, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="gl/ue has the splits train, test: name one of them, such as gl/ue:train"):
        read("gl/ue")
    with pytest.raises(MissingError, match=r'no data set that the hub gives \(Unknown split "none"\.\)'):
        read("gl/ue:none")
    with pytest.raises(MissingError, match="no gl/nothing on the hub"):
        read("gl/nothing:test")
    n_calls = len(hub)
    monkeypatch.setattr(sys.modules["datasets"], "__version__", "3.6.0")
    with pytest.raises(MissingError, match=r"datasets 3\.6\.0 can run a data set's own code"):
        read("gl/ue:test")
    assert len(hub) == n_calls
