"""Documents of every format, what they are called, and what is said of broken ones."""

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenadapt.errors import InputError, UsageError
from greenadapt.inference.entries import NamedText, read_texts
from greenadapt.progress import Silent
from tests.conftest import Notes
from tests.support.archives import tar_of

PAPER = "First line.\r\n\r\n  Second\u2028 “line”\t\n"
JATS = "<article><body><p>First <i>part</i>.</p><p>Second.</p></body></article>"
SQUAD = {"data": [{"paragraphs": [{"context": "x", "qas": [{"id": 1, "question": "Who?", "answers": []}]}]}]}


def write(path: Path, content: Any) -> str:
    data = content if isinstance(content, str | bytes) else json.dumps(content)
    data = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def rows(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def texts(source: str, *progress: Any, **options: Any) -> list[NamedText]:
    return list(read_texts(source, *progress or (Silent(),), **{"sample_by": "document", **options}))


def pairs(source: str, **options: Any) -> list[tuple[str, str]]:
    return [(text.name, text.text) for text in texts(source, **options)]


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Any:
    def pipe(content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    return pipe


# What a document's text is


@pytest.mark.parametrize("name", ["a.TEXT", "a.txt.gz"])
def test_plain_text_is_one_document_as_it_is(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / name, "\ufeff" + PAPER)
    assert pairs(source) == [(source, PAPER)]
    assert pairs(write(tmp_path / "paper", PAPER), format="text")[0][1] == PAPER
    record = rows({"text": "x"})
    assert pairs(write(tmp_path / name, record), format="text") == [(source, record)]


def _may_be_utf8(content: bytes) -> bool:
    return b"\0" not in content and not content.startswith((b"\xff\xfe", b"\xfe\xff", b"PK\3\4"))


@given(content=st.binary(min_size=1, max_size=40).filter(_may_be_utf8))
@example(content=b"a\n\xff\xfeb\n")
def test_characters_count_as_in_the_decoded_file(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    expected = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    source = write(tmp_path_factory.mktemp("documents") / "a.txt", content)
    if not expected.strip():
        with pytest.raises(InputError, match=r"a\.txt has no text"):
            texts(source)
    else:
        notes = Notes()
        assert [text.text for text in texts(source, notes, format="text")] == [expected]
        n_broken = expected.count("\ufffd") - content.count("\ufffd".encode())
        assert len(notes.warnings) == (n_broken > 0)


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {"a": st.text(), "b": st.none() | st.text(), "id": st.integers(0, 2) | st.text("xy\ud800")}
        )
    )
)
def test_records_are_verbatim_and_no_two_have_one_name(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> None:
    records = [{"a": "first", "b": None, "id": ""}, *records]
    source = write(tmp_path_factory.mktemp("documents") / "a.jsonl", rows(*records))
    expected = []
    for line, record in enumerate(records, start=1):
        text = "\n".join(value for value in (record["a"], record["b"]) if value is not None)
        if text.strip():
            expected.append((str(record["id"]).replace("\ud800", "\ufffd"), f"{source}:{line}", text))
    documents = texts(source, fields=("a", "b"))
    assert [text.text for text in documents] == [text for _, _, text in expected]
    assert len({text.name for text in documents}) == len(documents)
    seen = set()
    for document, (id_of_record, location, _) in zip(documents, expected, strict=True):
        assert document.name == (id_of_record if id_of_record.strip() and id_of_record not in seen else location)
        seen.add(id_of_record)


# Folders, archives, standard input


def test_a_folder_in_order_of_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "papers"
    for name, content in {
        "b.txt": "two\nlines", "sub/c.jsonl": rows({"text": "row"}), "a.nxml": JATS, "z.txt.gz": "packed",
        "picture.png": b"\0", "notes.pdf": b"\0", ".hidden.txt": "no", ".git/x.txt": "no", "empty.txt": " \n",
    }.items():  # fmt: skip
        write(folder / name, content)
    (folder / "gone.txt").symlink_to("nowhere.txt")
    monkeypatch.chdir(tmp_path)
    notes = Notes()
    assert texts("papers/", notes) == [
        NamedText("papers/a.nxml", "First part.\nSecond."),
        NamedText("papers/b.txt", "two\nlines"),
        NamedText("papers/sub/c.jsonl:1", "row"),
        NamedText("papers/z.txt.gz", "packed"),
    ]
    assert notes.warnings == [
        "papers/: skipped 3 files of unknown kinds (papers/gone.txt (a link), papers/notes.pdf, papers/picture.png); "
        "for text give --format",
        "papers/: left out 1 document without text",
    ]


def test_an_archive_and_what_its_members_are_called(tmp_path: Path) -> None:
    members = {
        "b/b.txt": "one\ntwo", "a.txt": "1", "./._a.txt": b"\0",
        "a.txt.gz": gzip.compress(b"packed"),
    }  # fmt: skip
    source = write(tmp_path / "x.tar.gz", tar_of(members))
    assert pairs(source) == [
        (f"{source}:b/b.txt", "one\ntwo"),
        (f"{source}:a.txt", "1"),
        (f"{source}:a.txt.gz", "packed"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.tar.gz"]


def test_standard_input(piped: Any) -> None:
    piped("\ufeff" + PAPER)
    assert pairs("-") == [("standard input", PAPER)]
    piped(rows({"text": "x"}, {"text": "y", "id": "z"}))
    assert pairs("-", format="jsonl") == [("standard input:1", "x"), ("z", "y")]
    piped(rows({"text": "x"}))
    with pytest.raises(InputError, match="standard input looks like JSON, not text: give --format jsonl"):
        texts("-")
    piped("")
    with pytest.raises(InputError, match="standard input has no text"):
        texts("-")
    with pytest.raises(UsageError, match="'auto' is not a format of standard input"):
        texts("-", format="auto")


# What is wrong with documents


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", " \n", r"a\.txt has no text"),
        ("a.pdf", b"%PDF\0", r"a\.pdf: cannot tell the format.*: give a file named \.txt.*\.tar.*, or say --format"),
        ("a.xml", "<article><body></article>", r"a\.xml is not well-formed XML"),
        ("a.json", {"body": "x"}, r"a\.json:1 has no field text, it has: body: choose one with --field$"),
        ("a.jsonl", {"text": 3}, r"a\.jsonl:1: field text is a number, not text"),
    ],
)  # fmt: skip
def test_what_is_no_document(name: str, content: Any, message: str, tmp_path: Path) -> None:
    source = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        texts(source)


def test_folders_without_documents(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="none has no text"):
        texts(str(tmp_path / "none"))
    write(tmp_path / "pictures" / "a.png", b"\0")
    with pytest.raises(InputError, match=r"pictures has no text: skipped 1 file of unknown kinds \(a\.png\): for text"):
        texts(str(tmp_path / "pictures"))
    with pytest.raises(InputError, match=r"a\.png is not text"):
        texts(str(tmp_path / "pictures"), format="text")


def test_documents_have_the_titles_that_their_formats_know(tmp_path: Path) -> None:
    body = "<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>7</PMID><Article><ArticleTitle>[Of <i>bats</i>.]"
    body += "</ArticleTitle><Abstract><AbstractText>They fly.</AbstractText></Abstract></Article></MedlineCitation>"
    parse = {"paper_id": "x", "metadata": {"title": "Of  camels"}, "body_text": [{"text": "They walk."}]}
    front = (
        "<front><article-meta><title-group><article-title>Of mice</article-title></title-group></article-meta></front>"
    )
    for name, content in {
        "a.xml": f"{body}</PubmedArticle></PubmedArticleSet>",
        "b.json": parse,
        "c.xml": JATS.replace("<article>", f"<article>{front}"),
        "d.csv": "title,text\nOf rats,They run.\n",
        "e.jsonl": {"text": "They swim.", "title": "Of fish"},
        "f.jsonl": {"text": "They sleep.", "title": 3},
        "g.txt": "They are.",
    }.items():
        write(tmp_path / "papers" / name, content)
    titles = [document.title for document in read_texts(str(tmp_path / "papers"), Silent())]
    assert titles == ["Of bats.", "Of camels", "Of mice", "Of rats", "Of fish", "", ""]
