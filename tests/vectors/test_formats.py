"""Files of vectors that claim more than they have."""

import gzip
import re
import tracemalloc
from pathlib import Path

import pytest

from greenadapt.errors import InputError
from greenadapt.vectors.word_vectors import read_vectors
from torture.material import write_texts


@pytest.mark.parametrize(
    ("name", "header", "said"),
    [
        ("a.vec", "1000000000000 300", "1,000,000,000,000 rows of 300 numbers, at least 602,000.0 GB, the file has"),
        ("a.bin", "1000000000000 300", "1,000,000,000,000 rows of 300 numbers, at least 1,201,000.0 GB, the file has"),
        ("a.vec.gz", "5 1000000000000", "5 rows of 1,000,000,000,000 numbers, which may be from 1 to 1,048,576"),
        ("a.bin.gz", "5 1000000000000", "5 rows of 1,000,000,000,000 numbers, which may be from 1 to 1,048,576"),
    ],
)
def test_a_header_that_claims_too_much_is_refused_before_memory_is_taken(
    tmp_path: Path, name: str, header: str, said: str
) -> None:
    content = f"{header}\nthe 1.0 2.0\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=re.escape(said)):
            read_vectors(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", ["", "1 2\n"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.txt").write_text(f"\ufeff{header}a 1 2\n", "utf-8")
    assert read_vectors(tmp_path / "a.txt").words == ["a"]


def test_a_line_of_text_vectors_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "a.vec").write_bytes(b"the " + b"1.0 " * (5 << 20))
    with pytest.raises(InputError, match=r"a\.vec, line 1: over 16\.8 MB"):
        read_vectors(tmp_path / "a.vec")


@pytest.mark.parametrize("kept", [20, 90, 110, 130, 200])
def test_a_model_of_fasttext_that_was_cut_short_ends(tmp_path: Path, kept: int) -> None:
    write_texts(tmp_path)
    path = tmp_path / "fast.bin"
    assert len(read_vectors(path).words) == 3
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"fast\.bin.*(truncated|ends within)"):
        read_vectors(path)


@pytest.mark.parametrize(("at", "value"), [(56 + 8, 10**9), (8, 10**6), (56 + 8, 0)])
def test_numbers_of_a_model_of_fasttext_match(tmp_path: Path, at: int, value: int) -> None:
    write_texts(tmp_path)
    content = bytearray((tmp_path / "fast.bin").read_bytes())
    content[at : at + 4] = value.to_bytes(4, "little")
    (tmp_path / "fast.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"fast\.bin (has|is truncated)"):
        read_vectors(tmp_path / "fast.bin")
