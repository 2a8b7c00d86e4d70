"""Whether a model of fastText is what it says, before gensim reads it: that takes its numbers on trust."""

import struct
from pathlib import Path
from typing import IO

from greenadapt.corpus.opening import is_compressed, open_binary
from greenadapt.errors import InputError, byte_size

MAGIC = struct.pack("<i", 793712314)
"""The first bytes of a model."""
_ARGUMENTS = struct.Struct("<2i12id")
_DIM, _BUCKETS = 2, 10  # among the arguments
_DICTIONARY = struct.Struct("<3i2q")
_AFTER_WORD = struct.Struct("<qb")
_PRUNED = struct.Struct("<2i")
_MATRIX = struct.Struct("<?2q")
_CHUNK = 1 << 20
_LONGEST_WORD = 1 << 16  # bytes
_AGAIN = "download or create it again"


def check_model(path: Path) -> None:
    """Raise ``InputError`` unless a model's words and its table are as many as it says, and all there."""
    if is_compressed(str(path)):
        raise InputError(f"{path} is a compressed model of fastText, which gensim does not read", "unpack it first")
    with open_binary(str(path)) as stream:
        file = _Bytes(stream, path)
        arguments = file.unpack(_ARGUMENTS)
        n_entries, n_words, n_labels, _, n_pruned = file.unpack(_DICTIONARY)
        if n_labels > 0:
            raise InputError(
                f"{path} is a classifier of fastText, which has no word vectors alone", "give word vectors"
            )
        if n_entries != n_words or n_words < 1:
            raise InputError(f"{path} has {n_entries:,} entries, {n_words:,} of them words", _AGAIN)
        for _ in range(n_words):
            file.skip_word()
            file.unpack(_AFTER_WORD)
        for _ in range(n_pruned):
            file.unpack(_PRUNED)
        is_quantized, n_rows, dim = file.unpack(_MATRIX)
        if is_quantized:
            raise InputError(f"{path} is quantized, which gensim does not read", "give the model before quantization")
        if (n_rows, dim) != (n_words + arguments[_BUCKETS], arguments[_DIM]) or min(arguments[_BUCKETS], dim - 1) < 0:
            raise InputError(
                f"{path} has {n_words:,} words, {arguments[_BUCKETS]:,} buckets and width {arguments[_DIM]:,}, but a "
                f"table of {n_rows:,} x {dim:,}",
                _AGAIN,
            )
    size, left = 4 * n_rows * dim, path.stat().st_size - file.n
    if left < size:
        raise InputError(
            f"{path} is truncated: its table of {n_rows:,} x {dim:,} takes {byte_size(size)}, {byte_size(left)} are "
            "left",
            _AGAIN,
        )


class _Bytes:
    """A file that is read in chunks, and ends with ``InputError``."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path = stream, path
        self._chunk, self._at = b"", 0
        self.n = 0
        """How many bytes were taken."""

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        """The next numbers."""
        self._need(form.size)
        found = form.unpack_from(self._chunk, self._at)
        self._take(form.size)
        return found

    def skip_word(self) -> None:
        """Leave out bytes up to a zero."""
        end = self._chunk.find(b"\0", self._at)
        if end < 0:
            self._need(1)
            self._more()
            end = self._chunk.find(b"\0", self._at)
        if not 0 <= end - self._at <= _LONGEST_WORD:
            raise InputError(f"{self._path} has a word of over {_LONGEST_WORD:,} bytes, or ends within one", _AGAIN)
        self._take(end + 1 - self._at)

    def _take(self, n: int) -> None:
        self._at += n
        self.n += n

    def _need(self, n: int) -> None:
        if len(self._chunk) - self._at < n:
            self._more()
        if len(self._chunk) - self._at < n:
            raise InputError(f"{self._path} is truncated at byte {self.n:,}", _AGAIN)

    def _more(self) -> None:
        self._chunk, self._at = self._chunk[self._at :] + self._stream.read(_CHUNK), 0
