"""Reading only what was appended to a corpus."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from greenadapt.corpus.readers import CorpusReader, open_corpus
from greenadapt.corpus.recipes import Source, find_recipe

FIRST = "one\n\ntwo words\n"


def reader(*paths: Path) -> CorpusReader:
    recipe = find_recipe(str(paths[0]), {})
    return open_corpus(replace(recipe, sources=tuple(Source(str(path)) for path in paths)), Path("nowhere"))


def goes_on(path: Path, change: Callable[[Path], object]) -> list[tuple[str, ...]] | None:
    """The documents read after a reading of ``path`` and a ``change``; ``None`` if all of them have to be read."""
    before = reader(path)
    assert [document.lines for document in before.documents()]
    sources, sizes, counts = before.fingerprint(), before.sizes(), before.counts
    change(path)
    after = reader(path)
    went_on = after.continue_from(sources, sizes, counts)
    documents = [document.lines for document in after.documents()]
    whole = reader(path)
    assert went_on == (len(documents) < len([*whole.documents()]))
    assert after.counts == whole.counts
    return documents if went_on else None


@pytest.mark.parametrize(
    ("first", "second", "documents"),
    [
        (FIRST, FIRST + "three\nfour\n", [("three",), ("four",)]),
        (FIRST, FIRST + "\n", []),
        (FIRST, FIRST, []),
        ("one\ntwo", "one\ntwo", []),
        ("one\ntwo", "one\ntwo three\n", None),  # the last line goes on
        (FIRST, FIRST.replace("two", "TWO") + "three\n", None),
        (FIRST, FIRST[:4], None),
    ],
)
def test_only_what_was_appended_is_read(
    tmp_path: Path, first: str, second: str, documents: list[tuple[str, ...]] | None
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(first)
    assert goes_on(path, lambda path: path.write_text(second)) == documents


def test_another_file_is_read_whole_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    path, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text('{"text": "one"}\n')
    second.write_text('{"text": "two"}\n')
    before = reader(path)
    [*before.documents()]
    sources, sizes = before.fingerprint(), before.sizes()
    path.write_text('{"text": "one"}\n{"text": "three"}\n')
    after = reader(path, second)
    assert after.continue_from(sources, sizes, before.counts)
    read = [(document.lines, document.name) for document in after.documents()]
    assert read == [(("three",), f"{path}:2"), (("two",), f"{second}:1")]
    assert after.counts == {"documents": 3, "lines": 3}


@pytest.mark.parametrize("name", ["text.csv", "text.txt.gz"])
def test_other_formats_are_read_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write = gzip.compress if name.endswith("gz") else bytes
    path.write_bytes(write(b"text\none\n"))
    assert goes_on(path, lambda path: path.write_bytes(write(b"text\none\ntwo\n"))) is None


def test_a_source_that_is_gone_is_noticed(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("one\n")
    second.write_text("two\n")
    before = reader(first, second)
    [*before.documents()]
    assert not reader(first).continue_from(before.fingerprint(), before.sizes(), before.counts)
