"""Word vectors: words, counts and a matrix; also in the formats of word2vec, GloVe and fastText."""

import codecs
import mmap
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np

from greenadapt.corpus.opening import is_compressed, open_binary
from greenadapt.corpus.prepared import read_vocabulary, write_vocabulary
from greenadapt.errors import InputError, MissingError, byte_size
from greenadapt.progress import Progress, Silent
from greenadapt.storage.arrays import Array, ArrayFile, Int64Array, row_blocks, write_arrays
from greenadapt.storage.outputs import open_file

VECTORS = "vectors.safetensors"
VOCABULARY = "vocabulary.tsv"
OUTPUT = "output.safetensors"


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
    output: Array | None = None
    """The output table of word2vec, of the same shape, after training; needed to update the vectors."""

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
        """Write ``vectors.safetensors``, ``vocabulary.tsv`` and, for an output table, ``output.safetensors``."""
        write_arrays(folder / VECTORS, {"vectors": self.matrix})
        write_vocabulary(folder / VOCABULARY, self.words, self.counts)
        if self.output is not None:
            write_arrays(folder / OUTPUT, {"output": self.output})

    @classmethod
    def load(cls, folder: Path) -> "WordVectors":
        """Read the files of ``save``, without the output table; the matrix is memory-mapped.

        Raises ``MissingError`` if a file does not exist, ``InputError`` if the files do not match.
        """
        for path in (folder / VECTORS, folder / VOCABULARY):
            if not path.is_file():
                raise MissingError(f"no file {path}")
        words, counts = read_vocabulary(folder / VOCABULARY)
        file = ArrayFile(folder / VECTORS)
        if "vectors" not in file or file.dtype("vectors") != "float32" or len(file.shape("vectors")) != 2:
            raise InputError(f"{file.path} holds no float32 matrix named vectors")
        if file.shape("vectors")[0] != len(words):
            raise InputError(f"{folder} has {file.shape('vectors')[0]} vectors and {len(words)} words")
        return cls(words, counts, file["vectors"])


def read_output(folder: Path) -> Array | None:
    """Read the output table of ``WordVectors.save``, memory-mapped; ``None`` if there is none."""
    return ArrayFile(folder / OUTPUT)["output"] if (folder / OUTPUT).is_file() else None


MAGIC = struct.pack("<i", 793712314)
"""The first bytes of a fastText model."""
_ARGUMENTS = struct.Struct("<2i12id")
_DIM, _BUCKETS = 2, 10  # among the arguments
_DICTIONARY = struct.Struct("<3i2q")
_AFTER_WORD = struct.Struct("<qb")
_PRUNED = struct.Struct("<2i")
_MATRIX = struct.Struct("<?2q")
_AGAIN = "download or create it again"


def check_model(path: Path) -> None:
    """Raise ``InputError`` unless a fastText model is complete, and its words and table match its header."""
    if is_compressed(str(path)):
        raise InputError(f"{path} is a compressed model of fastText, which gensim does not read", "unpack it first")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        arguments = _unpack(_ARGUMENTS, content, 0, path)
        n_entries, n_words, n_labels, _, n_pruned = _unpack(_DICTIONARY, content, _ARGUMENTS.size, path)
        if n_labels > 0:
            raise InputError(
                f"{path} is a classifier of fastText, which has no word vectors alone", "give word vectors"
            )
        if n_entries != n_words or n_words < 1:
            raise InputError(f"{path} has {n_entries:,} entries, {n_words:,} of them words", _AGAIN)
        begin = _ARGUMENTS.size + _DICTIONARY.size
        for _ in range(n_words):
            end = content.find(b"\0", begin, begin + _MAX_WORD + 1)
            if end < 0:
                raise InputError(f"{path} has a word of over {_MAX_WORD:,} bytes, or ends within one", _AGAIN)
            begin = end + 1 + _AFTER_WORD.size
        begin += max(n_pruned, 0) * _PRUNED.size
        is_quantized, n_rows, dim = _unpack(_MATRIX, content, begin, path)
        n_left = len(content) - begin - _MATRIX.size
    if is_quantized:
        raise InputError(f"{path} is quantized, which gensim does not read", "give the model before quantization")
    n_buckets, width = arguments[_BUCKETS], arguments[_DIM]
    if (n_rows, dim) != (n_words + n_buckets, width) or min(n_buckets, dim - 1) < 0:
        raise InputError(
            f"{path} has {n_words:,} words, {n_buckets:,} buckets and width {width:,}, but a table of {n_rows:,} x "
            f"{dim:,}",
            _AGAIN,
        )
    if n_left < 4 * n_rows * dim:
        raise InputError(
            f"{path} is truncated: its table of {n_rows:,} x {dim:,} takes {byte_size(4 * n_rows * dim)}, "
            f"{byte_size(n_left)} are left",
            _AGAIN,
        )


def _unpack(form: struct.Struct, content: mmap.mmap, begin: int, path: Path) -> tuple[int, ...]:
    if begin + form.size > len(content):
        raise InputError(f"{path} is truncated at byte {min(begin, len(content)):,}", _AGAIN)
    return form.unpack_from(content, begin)


_PICKLE = b"\x80"
_CHUNK = 1 << 22  # bytes
_MAX_WORD = 1 << 16  # bytes; a longer "word" in a binary file is not a word
_MAX_PHRASE = 1 << 8  # bytes
_MAX_LINE = 1 << 24  # bytes of a row as text
_MAX_DIM = 1 << 20
_SPACE = re.compile(b" ")
_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s*")
_NOT_TEXT = "give one word and its numbers a line, or name a binary file .bin"
_END_OF_LINE_WORD = "</s>"  # of word2vec, not a word of the text


def read_vectors(path: Path, progress: Progress | None = None) -> WordVectors:
    """Read word2vec binary (``.bin``) or text (any other name), with or without a header; fastText's ``.bin`` too.

    Decompresses ``.gz``, ``.bz2``, ``.xz`` and ``.zst``. Uses the first of several vectors of a word, and skips
    ``</s>``. Words of formats without counts have the count 1. Raises ``InputError`` if the file is truncated, has a
    row of another width or a number that is not finite, or is a Python pickle, which is never loaded.
    """
    progress = progress or Silent()
    if not path.is_file():
        raise MissingError(f"no vectors file {path}", "check the path")
    with open_binary(str(path)) as file:
        start = file.read(len(MAGIC))
    if start.startswith(_PICKLE):
        raise InputError(
            f"{path} is a Python pickle, which is never unpickled", "export it with gensim's save_word2vec_format"
        )
    if start == MAGIC:
        return _read_fasttext_model(path, progress)
    rows = _Rows(path)
    is_binary = ".bin" in path.suffixes
    try:
        with open_binary(str(path)) as file:
            (_read_binary if is_binary else _read_text)(file, rows)
        vectors = rows.finish(progress)
    except InputError:
        if is_binary:
            _refuse_phrases(path)
        raise
    if is_binary and not all(map(_is_sound, row_blocks(vectors.matrix))):
        _refuse_phrases(path)  # words with spaces do not always cause an error
    return vectors


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


class _Rows:
    """Collects words and vectors; the matrix grows in place, so that a wrong header costs no memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dim = 0
        self.expected: int | None = None
        """Number of rows in the header, if any."""
        self.read = 0
        self._rows: dict[str, int] = {}
        self._matrix: Array = np.empty((0, 0), np.float32)
        self._broken = self._repeated = 0

    def expect(self, dim: int, rows: int | None = None, min_bytes: int = 0) -> None:
        """Set the width, and the number of rows in the header; a row takes at least ``min_bytes`` in the file."""
        header = f"{self.path}: the header says {rows or 0:,} rows of {dim:,} numbers"
        if not 1 <= dim <= _MAX_DIM:
            raise InputError(f"{header}, which may be from 1 to {_MAX_DIM:,}", _AGAIN)
        size = self.path.stat().st_size
        if rows is not None and not is_compressed(str(self.path)) and size + _CHUNK < rows * min_bytes:
            raise InputError(
                f"{header}, at least {byte_size(rows * min_bytes)}, the file has {byte_size(size)}", _AGAIN
            )
        self.dim, self.expected = dim, rows
        self._matrix = np.empty((min(rows or 1024, _CHUNK // (4 * dim) + 1), dim), np.float32)

    def add(self, raw: bytes, vector: Array) -> None:
        """Add a row: the word's bytes and its numbers, ``(dim,)``."""
        self.read += 1
        word = raw.decode(errors="replace")
        self._broken += "\ufffd" in word and "\ufffd".encode() not in raw
        if word == _END_OF_LINE_WORD:
            return
        row = len(self._rows)
        if self._rows.setdefault(word, row) != row:
            self._repeated += 1
            return
        if row == len(self._matrix):
            rows = 2 * row + 1 if self.expected is None else max(row + 1, min(2 * row + 1, self.expected))
            self._matrix.resize((rows, self.dim), refcheck=False)
        self._matrix[row] = vector

    def finish(self, progress: Progress) -> WordVectors:
        """Check and return the vectors."""
        if self.expected is not None and self.read != self.expected:
            raise InputError(f"{self.path}: the header says {self.expected} rows, the file has {self.read}", _AGAIN)
        words = list(self._rows)
        if not words:
            raise InputError(f"{self.path} holds no vectors", "give a file that has some")
        self._matrix.resize((len(words), self.dim), refcheck=False)
        _require_finite(self.path, words, self._matrix)
        if self._broken:
            progress.warn(f"{self.path}: {self._broken} words are not UTF-8; their broken bytes became \ufffd")
        if self._repeated:
            progress.warn(f"{self.path}: {self._repeated} rows repeat an earlier word and were left out")
        return WordVectors(words, np.ones(len(words), np.int64), self._matrix)


def _require_finite(path: Path, words: list[str], matrix: Array) -> None:
    begin = 0
    for block in row_blocks(matrix):
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if len(bad):
            raise InputError(
                f"{path}: the vector of {words[begin + bad[0]]!r} holds NaN or infinity", "train or export it again"
            )
        begin += len(block)


def _read_text(file: IO[bytes], rows: _Rows) -> None:
    for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE + 1), b""), 1):
        where = f"{rows.path}, line {number}"
        if len(line) > _MAX_LINE:
            raise InputError(f"{where}: over {byte_size(_MAX_LINE)}, which no word vector takes as text", _NOT_TEXT)
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        word, _, numbers = line.strip(b" \r\n\t").partition(b" ")
        if number == 1 and (header := _HEADER.fullmatch(line)):
            rows.expect(int(header[2]), int(header[1]), 2 + 2 * int(header[2]))
            continue
        if not word:
            continue
        try:
            vector = np.array(numbers.split(), np.float32)
        except ValueError:
            text = numbers[:60].decode(errors="replace")
            raise InputError(f"{where}: {text!r} … are not numbers alone", _NOT_TEXT) from None
        if not len(vector):
            raise InputError(f"{where}: {word[:60].decode(errors='replace')!r} has no numbers", _NOT_TEXT)
        if not rows.dim:
            rows.expect(len(vector))
        if len(vector) != rows.dim:
            raise InputError(f"{where}: {len(vector)} numbers, need {rows.dim}", _AGAIN)
        rows.add(word, vector)


def _read_binary(file: IO[bytes], rows: _Rows) -> None:
    header = _HEADER.fullmatch(file.readline(100))
    if header is None:
        raise InputError(
            f"{rows.path} is not a word2vec binary file: it does not begin with its number of rows and width",
            "name a file of text .txt or .vec",
        )
    rows.expect(int(header[2]), int(header[1]), 1 + 4 * int(header[2]))
    size = 4 * rows.dim
    buffer, begin = b"", 0
    while rows.read < int(header[1]):
        space = buffer.find(b" ", begin)
        if space < 0 or len(buffer) < space + 1 + size:
            if space - begin > _MAX_WORD or (space < 0 and len(buffer) - begin > _MAX_WORD):
                raise InputError(
                    f"{rows.path}, row {rows.read + 1}: a word of over {_MAX_WORD} bytes", "is it float32?"
                )
            chunk = file.read(max(_CHUNK, size))
            if not chunk:
                raise InputError(
                    f"{rows.path} is truncated in row {rows.read + 1}; its header says {rows.expected} rows", _AGAIN
                )
            buffer, begin = buffer[begin:] + chunk, 0
            continue
        # word2vec ends each row with a line break, gensim does not
        rows.add(buffer[begin:space].lstrip(b"\n"), np.frombuffer(buffer, "<f4", rows.dim, space + 1))
        begin = space + 1 + size
    if buffer[begin:].strip(b"\n") or file.read(1).strip(b"\n"):
        raise InputError(f"{rows.path} continues after the {rows.expected} rows of its header", "is it float32?")


def _refuse_phrases(path: Path) -> None:
    """Raise ``InputError`` for a word with spaces in a binary file, after which alone the bytes are a vector."""
    with open_binary(str(path)) as file:
        header = _HEADER.fullmatch(file.readline(100))
        if header is None or not 1 <= int(header[2]) <= _MAX_DIM:
            return
        n_rows, size = int(header[1]), 4 * int(header[2])
        buffer, begin = b"", 0
        for _ in range(n_rows):
            if len(buffer) - begin < _MAX_PHRASE + size:
                buffer, begin = buffer[begin:] + file.read(max(_CHUNK, size)), 0
            ends = [match.start() for match in _SPACE.finditer(buffer, begin, begin + _MAX_PHRASE)]
            if not ends or len(buffer) < ends[0] + 1 + size:
                return
            if not _has_vector(buffer, ends[0] + 1, size):
                for end in ends[1:]:
                    word = buffer[begin:end].lstrip(b"\n").decode(errors="replace")
                    if word.isprintable() and "\ufffd" not in word and _has_vector(buffer, end + 1, size):
                        raise InputError(
                            f"{path}: the word {word!r} has a space, where a word ends in word2vec's binary format",
                            "replace spaces within words, by underscores for instance, and export the vectors again",
                        ) from None
            begin = ends[0] + 1 + size


def _has_vector(content: bytes, begin: int, size: int) -> bool:
    raw = content[begin : begin + size]
    return len(raw) == size and _is_sound(np.frombuffer(raw, "<f4"))


def _is_sound(numbers: Array) -> bool:
    """Whether numbers have the magnitude of word vectors, unlike text read as numbers."""
    sizes = np.abs(numbers)
    return bool(((sizes == 0) | ((sizes > 1e-12) & (sizes < 1e6))).all())


def _read_fasttext_model(path: Path, progress: Progress) -> WordVectors:
    """Read a fastText model: the vectors of its words, including subword units, and their counts."""
    check_model(path)
    try:
        from gensim.models.fasttext import load_facebook_vectors
    except ImportError:
        raise MissingError(
            f"{path} is a fastText model, and gensim, which reads it, is not installed",
            "give the text file of its vectors (.vec), or install gensim, which has wheels for Python 3.11 to 3.13",
        ) from None
    try:
        with np.errstate(all="ignore"):  # numbers that are not finite are refused below
            model: Any = load_facebook_vectors(str(path))
    except Exception as error:  # the library raises any kind of error
        raise InputError(f"{path} is a fastText model that cannot be read ({error})", _AGAIN) from None
    rows = [row for row, word in enumerate(model.index_to_key) if word != _END_OF_LINE_WORD]
    words = [model.index_to_key[row] for row in rows]
    counts: Int64Array = np.array([model.get_vecattr(row, "count") for row in rows], np.int64)
    matrix = np.asarray(model.vectors, np.float32)[rows]
    _require_finite(path, words, matrix)
    progress.note(f"{path}: {len(words)} words of a fastText model")
    return WordVectors(words, counts, matrix)
