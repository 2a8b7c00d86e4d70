"""Word vectors: words, counts and one matrix."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from greenadapt.corpus.word_counts import read_vocabulary, write_vocabulary
from greenadapt.errors import InputError, MissingError
from greenadapt.storage.arrays import Array, ArrayFile, Int64Array, write_arrays

VECTORS = "vectors.safetensors"
VOCABULARY = "vocabulary.tsv"
OUTPUT = "output.safetensors"


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words, most frequent first, and their vectors.

    Vectors that were trained elsewhere may come without counts; each count is then 1, the least a word has.
    """

    words: list[str]
    counts: Int64Array
    """int64, ``(n_words,)``"""
    matrix: Array
    """float32, ``(n_words, dim)``; may be memory-mapped."""
    output: Array | None = None
    """The output table of word2vec, of the same shape, of vectors that were just trained; to train them on."""

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
        """Write ``vectors.safetensors``, ``vocabulary.tsv`` and, of an output table, ``output.safetensors`` into
        ``folder``.
        """
        write_arrays(folder / VECTORS, {"vectors": self.matrix})
        write_vocabulary(folder / VOCABULARY, self.words, self.counts)
        if self.output is not None:
            write_arrays(folder / OUTPUT, {"output": self.output})

    @classmethod
    def load(cls, folder: Path) -> "WordVectors":
        """Read what ``save`` wrote, without the output table; the matrix is memory-mapped.

        Raises ``MissingError`` if a file is not there, ``InputError`` if the two do not belong together.
        """
        _require(folder / name for name in (VECTORS, VOCABULARY))
        words, counts = read_vocabulary(folder / VOCABULARY)
        file = ArrayFile(folder / VECTORS)
        if "vectors" not in file or file.dtype("vectors") != "float32" or len(file.shape("vectors")) != 2:
            raise InputError(f"{file.path} holds no float32 matrix named vectors")
        if file.shape("vectors")[0] != len(words):
            raise InputError(f"{folder} has {file.shape('vectors')[0]} vectors and {len(words)} words")
        return cls(words, counts, file["vectors"])


def read_output(folder: Path) -> Array | None:
    """The output table that ``WordVectors.save`` wrote, memory-mapped; ``None`` if there is none."""
    return ArrayFile(folder / OUTPUT)["output"] if (folder / OUTPUT).is_file() else None


def _require(paths: Iterable[Path]) -> None:
    for path in paths:
        if not path.is_file():
            raise MissingError(f"no file {path}")
