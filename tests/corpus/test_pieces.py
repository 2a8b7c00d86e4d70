"""A text read in parts is the text: the same documents, with the same line numbers."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from greenadapt.corpus import readers
from greenadapt.corpus.readers import CorpusReader, open_corpus, parts_of
from greenadapt.corpus.recipes import Source, find_recipe


def reader(*paths: Path) -> CorpusReader:
    recipe = find_recipe(str(paths[0]))
    return open_corpus(replace(recipe, sources=tuple(Source(str(path)) for path in paths)), paths[0].parent / "d")


def random_text(source: random.Random) -> bytes:
    ends = [b"\n", b"\r\n", b"\n\n"]
    lines = [b"x" * source.randrange(60) + source.choice(ends) for _ in range(source.randrange(1, 120))]
    return b"\xef\xbb\xbfbegin\n" + b"".join(lines) + b"the end, and no line end" * source.randrange(2)


@pytest.mark.parametrize("seed", range(20))
def test_parts_have_all_documents_in_order(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(seed)
    size = source.choice([1, 37, 64, 200, 1_000, 10_000])
    monkeypatch.setattr(readers, "SMALLEST", size)
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    for path in paths:
        path.write_bytes(random_text(source))
    whole, apart = reader(*paths), reader(*paths)
    documents, counts, found = list(whole.documents()), Counter[str](), []
    parts = parts_of(apart.pieces(), "auto")
    for part in parts:
        found += apart.documents_of(part)
        counts.update(apart.counts)
    assert found == documents
    assert counts == whole.counts
    n_bytes = sum(path.stat().st_size for path in paths)
    assert len(parts) <= 1 + 2 * n_bytes // size
    assert len(parts) > n_bytes // (size + 62) // 2


def test_what_cannot_be_cut_is_one_piece_and_small_files_are_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SMALLEST", 100)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.csv").write_text("text\n" + "some words\n" * 50)
    for name in "bcd":
        (folder / f"{name}.txt").write_text("some words\n" * 3)
    (folder / "e.txt").write_text("some words\n" * 20)
    (folder / ".hidden.txt").write_text("some words\n" * 50)
    parts = parts_of(reader(folder).pieces(), "auto")
    names = [[(Path(piece.path).stem, piece.span is not None) for piece in part] for part in parts]
    small = [("b", False), ("c", False), ("d", False)]
    assert names == [[("a", False)], small, *[[("e", True)]] * 3]
