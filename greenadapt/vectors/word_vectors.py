"""Word vectors: words, counts and a matrix; also in the formats of word2vec, GloVe and fastText."""

import re
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import clear_frames
from typing import Any

import numpy as np

from greenadapt.corpus.opening import open_binary
from greenadapt.corpus.prepared import read_vocabulary, write_vocabulary
from greenadapt.errors import InputError, MissingError, first_line, pluralize
from greenadapt.progress import Progress, Silent
from greenadapt.store.arrays import Array, ArrayFile, Int64Array, require_finite, write_arrays
from greenadapt.store.outputs import open_file

VECTORS = "vectors.safetensors"
VOCABULARY = "vocabulary.tsv"


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words, most frequent first, and their vectors.

    Vectors of other programs may lack counts; each count is then 1.
    """

    words: list[str]
    counts: Int64Array
    """int64, ``(n_words,)``"""
    matrix: Array
    """float32, ``(n_words, dim)``; may be memory-mapped."""

    def __post_init__(self) -> None:
        if not len(self.words) == len(self.counts) == len(self.matrix):
            raise ValueError(f"{len(self.words)} words, {len(self.counts)} counts, {len(self.matrix)} vectors")

    @cached_property
    def index(self) -> dict[str, int]:
        """Word → its row."""
        return {word: row for row, word in enumerate(self.words)}

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.matrix.shape[1])

    def save(self, folder: Path) -> None:
        """Write ``vectors.safetensors`` and ``vocabulary.tsv``."""
        write_arrays(folder / VECTORS, {"vectors": self.matrix})
        write_vocabulary(folder / VOCABULARY, self.words, self.counts)

    @classmethod
    def load(cls, folder: Path) -> "WordVectors":
        """Read the files of ``save``; the matrix is memory-mapped.

        Raises ``MissingError`` if a file does not exist.
        """
        file = ArrayFile(folder / VECTORS)
        words, counts = read_vocabulary(folder / VOCABULARY)
        return cls(words, counts, file["vectors"])


_MAGIC = (793712314).to_bytes(4, "little")
"""The first bytes of a fastText model."""
_PICKLE = b"\x80"
_HEADER = re.compile(rb"\s*\d+\s+\d+\s*")
_END_OF_LINE_WORD = "</s>"  # of word2vec, not a word of the text


def read_vectors(path: Path, progress: Progress | None = None) -> WordVectors:
    """Read word2vec binary (``.bin``) or text (any other name), with or without a header; fastText's ``.bin`` too.

    gensim reads the files, also compressed ones. Of several vectors of a word the first counts, and ``</s>`` is left
    out. Words of formats without counts have the count 1. Raises ``InputError`` if gensim cannot read the file, if a
    number is not finite, or for a Python pickle, which is never loaded; ``MissingError`` without gensim.
    """
    progress = progress or Silent()
    if not path.is_file():
        raise MissingError(f"no vectors file {path}", "check the path")
    with open_binary(str(path)) as file:
        start = file.readline(100)
    if start.startswith(_PICKLE):
        raise InputError(
            f"{path} is a Python pickle, which is never unpickled", "export it with gensim's save_word2vec_format"
        )
    keyed = _load(path, start)
    row_of = {word: row for word, row in keyed.key_to_index.items() if word != _END_OF_LINE_WORD}
    words, rows = [*row_of], [*row_of.values()]
    if not words:
        raise InputError(f"{path} holds no vectors", "give a file that has some")
    is_fasttext = start.startswith(_MAGIC)
    counts = np.array([keyed.get_vecattr(row, "count") if is_fasttext else 1 for row in rows], np.int64)
    matrix = np.asarray(keyed.vectors, np.float32)[rows]
    require_finite(matrix, "vectors", path)
    if n_broken := sum("\ufffd" in word for word in words):
        progress.warn(f"{path}: {pluralize(n_broken, 'word')} had broken UTF-8, which became \ufffd")
    return WordVectors(words, counts, matrix)


def _load(path: Path, start: bytes) -> Any:
    """gensim's ``KeyedVectors`` of a file that begins with ``start``."""
    try:
        from gensim.models import KeyedVectors
        from gensim.models.fasttext import load_facebook_vectors
    except ImportError:
        raise MissingError(
            f"gensim, which reads {path}, is not installed", 'pip install "greenadapt[vectors]"'
        ) from None
    options: dict[str, Any] = {"unicode_errors": "replace", "binary": ".bin" in path.suffixes}
    if not options["binary"] and not _HEADER.fullmatch(start):
        options["no_header"] = True
    # gensim leaves files open, also in the frames of its errors; numbers that are not finite are refused afterwards.
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=ResourceWarning):
        try:
            if start.startswith(_MAGIC):
                return load_facebook_vectors(str(path))
            return KeyedVectors.load_word2vec_format(str(path), **options)
        except Exception as error:  # the library raises any kind of error
            clear_frames(error.__traceback__)
            raise InputError(
                f"{path} cannot be read as word vectors ({first_line(error)})",
                "give word2vec's text, or its binary format named .bin; download or create it again",
            ) from None


def write_vectors(vectors: WordVectors, path: Path) -> None:
    """Write word2vec binary (``.bin``) or text (any other name), compressed if the suffix says so; see ``open_file``.

    Text has nine significant digits, which represent float32 exactly. Raises ``InputError`` for a word with white
    space, which neither format supports.
    """
    for word in vectors.words:
        if not word or any(character in word for character in " \t\n\r"):
            raise InputError(
                f"{word!r} cannot be written to {path.name}: it is empty or has white space", "leave such words out"
            )
    rows = zip(vectors.words, vectors.matrix, strict=True)
    if ".bin" in path.suffixes:
        lines = (f"{word} ".encode() + row.astype("<f4").tobytes() for word, row in rows)
    else:
        numbers = " ".join(["%.9g"] * vectors.dim)
        lines = (f"{word} {numbers % tuple(row.tolist())}\n".encode() for word, row in rows)
    with open_file(path, "wb") as file:
        file.write(f"{len(vectors.words)} {vectors.dim}\n".encode())
        file.writelines(lines)
