"""What a document of plain text is: the same everywhere, a line unless it is said."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.config import SampleBy
from greenadapt.corpus.readers import open_corpus, read_whole
from greenadapt.corpus.recipes import find_recipe
from greenadapt.corpus.text import Decoder
from tests.conftest import Run

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "\ufeffThe heart beats.\n\n  A virus spread\nin the city. \r\n \n\nAn aardvark eats."
CORPUS: dict[SampleBy, list[tuple[int, tuple[str, ...]]]] = {
    "line": [
        (1, ("The heart beats.",)),
        (3, ("A virus spread",)),
        (4, ("in the city.",)),
        (7, ("An aardvark eats.",)),
    ],
    "paragraph": [
        (1, ("The heart beats.",)),
        (3, ("A virus spread", "in the city.")),
        (7, ("An aardvark eats.",)),
    ],
    "document": [(0, ("The heart beats.", "A virus spread", "in the city.", "An aardvark eats."))],
}
"""What is read of ``TEXT``: the number of the first line, and the lines."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.txt").write_text(TEXT, "utf-8", newline="")
    return tmp_path / "small.txt"


@pytest.mark.parametrize("by", CORPUS)
def test_a_corpus_and_whole_documents_have_the_same_ones(file: Path, by: SampleBy) -> None:
    read = open_corpus(find_recipe("small.txt", {"sample_by": by}), file.parent)
    names = {number: f"{file}:{number}" if number else str(file) for number, _ in CORPUS[by]}
    assert [(document.name, document.lines) for document in read.documents()] == [
        (names[at], lines) for at, lines in CORPUS[by]
    ]
    whole = [*read_whole(str(file), "text", ("text",), Decoder(), by)]
    assert [document.name for document in whole] == [*names.values()]
    for document, (_, lines) in zip(whole, CORPUS[by], strict=True):
        [text] = document.lines
        assert tuple(line.strip() for line in text.split("\n") if line.strip()) == lines
        assert text in TEXT.removeprefix("\ufeff")


def test_a_corpus_is_prepared_by_it(file: Path, run_alone: Run, tiny_model: Callable[..., Path]) -> None:
    options = ("-m", tiny_model(), "--workers", "1", "--sample-by", "document", "--json")
    row = json.loads(run_alone("corpus", "prepare", file, *options).stdout)
    assert row["counts"]["documents"] == 1
    assert json.loads((Path(row["folder"]) / "manifest.json").read_text())["config"]["sample_by"] == "document"
