"""Word vectors on disk: our own folder, and other programs' formats beside gensim's own reader and writer."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gensim.models import FastText, KeyedVectors
from gensim.models.fasttext import save_facebook_model

from greenadapt.errors import InputError, MissingError
from greenadapt.vectors.word_vectors import WordVectors, read_vectors, write_vectors
from tests.conftest import Notes

WORDS = ["heart", "Herzöße", "心", "3.14", "##x", "\u00a0nbsp", "a\u2028b"]


@pytest.fixture
def vectors() -> WordVectors:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(len(WORDS), 9)).astype(np.float32)
    matrix[0, :3] = [0, -0.0, 1e-42]
    return WordVectors(WORDS, np.arange(len(WORDS), 0, -1), matrix)


def same_bits(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def as_gensim(vectors: WordVectors) -> KeyedVectors:
    keyed = KeyedVectors(vectors.dim)
    keyed.add_vectors(vectors.words, vectors.matrix)
    return keyed


def test_own_folder_comes_back_memory_mapped(tmp_path: Path, vectors: WordVectors) -> None:
    vectors.save(tmp_path)
    loaded = WordVectors.load(tmp_path)
    assert loaded.words == WORDS
    assert loaded.counts.tolist() == vectors.counts.tolist()
    assert same_bits(loaded.matrix, vectors.matrix)
    assert not loaded.matrix.flags.writeable
    assert not loaded.matrix.flags.owndata
    assert loaded.index["心"] == 2


@pytest.mark.parametrize("name", ["v.bin", "v.txt", "v.bin.gz"])
def test_gensim_reads_what_we_write(tmp_path: Path, vectors: WordVectors, name: str) -> None:
    write_vectors(vectors, tmp_path / name)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    assert theirs.index_to_key == WORDS
    assert same_bits(theirs.vectors, vectors.matrix)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["v.bin", "v.txt", "v.bin.gz"])
def test_we_read_what_gensim_writes(tmp_path: Path, vectors: WordVectors, name: str) -> None:
    as_gensim(vectors).save_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    ours = read_vectors(tmp_path / name)
    assert ours.words == WORDS
    assert same_bits(ours.matrix, vectors.matrix)
    assert ours.counts.tolist() == [1] * len(WORDS)


def test_glove_has_no_header(tmp_path: Path, vectors: WordVectors) -> None:
    as_gensim(vectors).save_word2vec_format(str(tmp_path / "v.txt"), write_header=False)
    assert same_bits(read_vectors(tmp_path / "v.txt").matrix, vectors.matrix)


def test_binary_of_word2vec_itself_ends_rows_with_line_breaks_and_begins_with_its_own_word(tmp_path: Path) -> None:
    rows = np.array([[9, 9], [1, 2], [3, 4]], "<f4")
    words = [b"</s>", b"heart", b"rate"]
    body = b"".join(word + b" " + row.tobytes() + b"\n" for word, row in zip(words, rows, strict=True))
    (tmp_path / "v.bin").write_bytes(b"3 2\n" + body)
    vectors = read_vectors(tmp_path / "v.bin")
    assert vectors.words == ["heart", "rate"]
    assert vectors.matrix.tolist() == [[1, 2], [3, 4]]


def test_fasttext_model(tmp_path: Path) -> None:
    model = FastText([["heart", "rate"] * 9, ["heart", "cell"]], vector_size=6, min_count=1, bucket=50, epochs=1)
    save_facebook_model(model, str(tmp_path / "v.bin"))
    vectors = read_vectors(tmp_path / "v.bin")
    assert dict(zip(vectors.words, vectors.counts.tolist(), strict=True)) == {"heart": 10, "rate": 9, "cell": 1}
    assert np.allclose(vectors.matrix, model.wv[vectors.words], atol=1e-6)


def test_other_programs_vectors_need_gensim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.vec").write_text("heart 1 2\n")
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(MissingError, match=r"gensim, which reads .*v\.vec, is not installed"):
        read_vectors(tmp_path / "v.vec")


def test_the_first_of_repeated_words_counts_and_broken_words_are_told(tmp_path: Path) -> None:
    (tmp_path / "v.vec").write_bytes(b"4 2\nheart 1 2 \nheart 3 4 \nb\xffd 5 6 \nrate 7 8\n")
    notes = Notes()
    vectors = read_vectors(tmp_path / "v.vec", notes)
    assert vectors.words == ["heart", "b\ufffdd", "rate"]
    assert vectors.matrix.tolist() == [[1, 2], [5, 6], [7, 8]]
    [line] = notes.lines
    assert "1 word had broken UTF-8" in line


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"2 3\na 1 2 3\nb 1 2\n", "cannot be read"),
        ("v.txt", b"a 1 2\nb 1 inf\n", "1 of the 4 numbers of vectors are NaN or infinity"),
        ("v.txt", b"", "cannot be read|no vectors"),
        ("v.bin", b"2 2\na " + bytes(8) + b"b " + bytes(7), "cannot be read"),
        ("v.kv", pickle.dumps({}), "never unpickled: export it with gensim's save_word2vec_format"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_vectors(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no vectors file"):
        read_vectors(tmp_path / "v.txt")


def test_a_failed_write_leaves_nothing(tmp_path: Path, vectors: WordVectors) -> None:
    path = tmp_path / "v.txt"
    spaced = WordVectors(["a b", *WORDS[1:]], vectors.counts, vectors.matrix)
    with pytest.raises(InputError, match="'a b' cannot be written"):
        write_vectors(spaced, path)
    with pytest.raises(UnicodeEncodeError):
        write_vectors(WordVectors([*WORDS[:-1], "\ud800"], vectors.counts, vectors.matrix), path)
    assert list(tmp_path.iterdir()) == []
