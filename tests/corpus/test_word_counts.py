from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.corpus.prepared import read_vocabulary, write_vocabulary
from greenadapt.errors import InputError


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1).filter(lambda w: not {"\t", "\n"} & set(w)), st.integers(0, 2**60)))
def test_words_and_counts_come_back(tmp_path_factory: pytest.TempPathFactory, vocabulary: dict[str, int]) -> None:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.tsv"
    write_vocabulary(path, list(vocabulary), np.array(list(vocabulary.values()), np.int64))
    words, counts = read_vocabulary(path)
    assert dict(zip(words, counts.tolist(), strict=True)) == vocabulary
    assert words == list(vocabulary)
    assert counts.dtype == np.int64


def test_the_format_is_word_tab_count(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.tsv"
    write_vocabulary(path, ["é", "a\r\x0b\x85\u2028"], np.array([7, 1]))
    assert path.read_bytes() == "é\t7\na\r\x0b\x85\u2028\t1\n".encode()


@pytest.mark.parametrize("word", ["", "a\tb", "a\nb"])
def test_words_that_would_not_come_back_are_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(InputError, match="word 1 "):
        write_vocabulary(tmp_path / "vocabulary.tsv", ["good", word], np.array([1, 1]))


@pytest.mark.parametrize("line", ["word", "word\t", "\t3", "word\t-3", "word\tthree", "word\t3\t4", "word 3", ""])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "vocabulary.tsv"
    path.write_text(f"good\t5\n{line}\n")
    with pytest.raises(InputError, match=r"vocabulary\.tsv, line 2"):
        read_vocabulary(path)


def test_broken_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.tsv"
    path.write_bytes(b"good\t5\n\xff\xfe\t1\n")
    with pytest.raises(InputError, match=r"vocabulary\.tsv.*UTF-8"):
        read_vocabulary(path)
