"""Decode text by line and within limits, also from pipes, compressed files and archives."""

import codecs
import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO, Any, cast

from greenadapt.errors import InputError, byte_size, pluralize
from greenadapt.progress import Progress
from greenadapt.store.files import Json, shorten_path

_BLOCK = 1 << 16
_LINES_CHECKED = 100
"""Lines in which a NUL byte means a binary file; in later lines it is noise."""
_NAMES_SHOWN = 3
MAX_DOCUMENT_BYTES = 128 << 20
"""Longest document, in the file's encoding. Anything longer is not text, and would need unbounded memory."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """A text: its paragraphs, one line each, and its source."""

    lines: tuple[str, ...]
    name: str = ""
    id: str = ""
    """The record's own id, if any."""
    title: str = ""
    """Title of the paper or the record, if any."""


@dataclass
class Decoder:
    """Decodes UTF-8: a broken byte sequence is counted and replaced by U+FFFD, or refused if ``strict``."""

    strict: bool = False
    lenient: bool = False
    """Whether broken lines of JSON and rows of tables are skipped and counted as ``broken_lines``."""
    leniency: str = ""
    """How a user skips them, for messages; empty if nothing does."""
    max_bytes: int = MAX_DOCUMENT_BYTES
    """Longest document, in bytes; less than the default if memory is limited."""
    counts: Counter[str] = field(default_factory=Counter)
    """``replaced``: broken sequences; the readers add ``documents``, ``lines`` and counts of what they skip."""
    first_broken: int = 0
    """The first line that was skipped, from 1; an entry in a JSON array."""
    skipped: list[str] = field(default_factory=list)
    """Names of the first files of unknown kinds, which were skipped and counted as ``skipped_files``."""

    def skip_file(self, name: str) -> None:
        """Count a file of an unknown kind."""
        self.counts["skipped_files"] += 1
        if len(self.skipped) < _NAMES_SHOWN:
            self.skipped.append(name)

    def skipped_files(self) -> str:
        """The number of files of unknown kinds, and the names of the first, for messages; "" if there are none."""
        n, names = self.counts["skipped_files"], ", ".join(map(shorten_path, self.skipped[:_NAMES_SHOWN]))
        more = ", …" if n > _NAMES_SHOWN else ""
        return f"{pluralize(n, 'file')} of unknown kinds ({names}{more})" if n else ""

    def skip(self, line: int, error: InputError) -> None:
        """Count a broken line or row if ``lenient``, else raise ``error``."""
        if not self.lenient:
            raise InputError(error.message, ", or ".join(filter(None, (error.hint, self.leniency))))
        self.counts["broken_lines"] += 1
        self.first_broken = self.first_broken or line

    def decode(self, data: bytes, where: str) -> str:
        """Decode ``data``; if ``strict``, raises InputError with ``where`` and the byte that is not UTF-8."""
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            if self.strict:
                raise InputError(
                    f"{where}: byte {error.start + 1} (0x{data[error.start]:02x}) is not UTF-8",
                    "convert the file to UTF-8, or leave out --strict to count and replace such bytes",
                ) from None
            text = data.decode("utf-8", errors="replace")
            self.counts["replaced"] += text.count("\ufffd") - data.count("\ufffd".encode())
            return text

    def replace_surrogates(self, text: str, where: str) -> str:
        """Replace lone surrogates, which JSON and Python can escape but no file can hold."""
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError as error:
            if self.strict:
                raise InputError(
                    f"{where}: character {error.start + 1} is a lone surrogate",
                    "correct it, or leave out --strict to count and replace such characters",
                ) from None
            self.counts["replaced"] += sum("\ud800" <= character <= "\udfff" for character in text)
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def replace_record_surrogates(self, record: Json, where: str) -> Json:
        """Replace lone surrogates in all texts and names of a JSON object."""
        text = json.dumps(record, ensure_ascii=False)
        replaced = self.replace_surrogates(text, where)
        if replaced is text:
            return record
        return json.loads(replaced)

    def warn_replaced(self, name: str, progress: Progress) -> None:
        """Warn about replaced bytes and characters in ``name``."""
        if replaced := self.counts["replaced"]:
            singular, plural = "byte sequence or character is", "byte sequences or characters are"
            progress.warn(f"{name}: {pluralize(replaced, singular, plural)} not UTF-8, replaced by U+FFFD")

    def lines(self, stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
        """Yield line numbers (from 1) and lines with their ends, without a BOM; InputError if the file is binary.

        If there are carriage returns within the first line, they end lines, too.
        """
        number, too_many = 0, self.max_bytes + 1
        with _line_reader(stream) as (readline, ends):
            while line := readline(min(_BLOCK, too_many)):
                number += 1
                if number <= _LINES_CHECKED:
                    _refuse_binary(line, name, is_first=number == 1)
                where = f"{name}, line {number}"
                if not line.endswith(ends):  # the rest of a long line
                    line += readline(max(0, too_many - len(line)))
                    self.check_size(len(line), where)
                text = line.removeprefix(_BOM) if number == 1 else line
                yield number, self.decode(text, where)

    def join(self, lines: Iterable[tuple[int, str]], name: str) -> str:
        """Join numbered lines; ``InputError`` if they are longer than the limit of a document."""
        size, text = 0, io.StringIO()  # a list of short lines would take 30 times as much memory
        for _, line in lines:
            size += len(line) if line.isascii() else len(line.encode(errors="surrogatepass"))
            self.check_size(size, name)
            text.write(line)
        return text.getvalue()

    def blocks(self, stream: IO[bytes], name: str, begin: bytes = b"") -> Iterator[bytes]:
        """Yield ``begin`` and the rest of the file as valid UTF-8, in blocks.

        A block ends at the end of a line, or between two characters of a very long line.
        """
        start, remainder = 1, begin
        while read := stream.read(_BLOCK):
            block, remainder = _whole_characters(remainder + read + stream.readline(_BLOCK))
            yield self.decode(block, f"{name}, from line {start}").encode()
            start += block.count(b"\n")
        if remainder:
            yield self.decode(remainder, f"{name}, from line {start}").encode()

    def check_size(self, n_bytes: int, where: str) -> None:
        """Raise ``InputError`` if a document of ``n_bytes`` or more is longer than the limit."""
        if n_bytes > (limit := self.max_bytes):
            advice = "split it" if limit == MAX_DOCUMENT_BYTES else "raise --max-memory"
            raise InputError(
                f"{where}: a document of over {byte_size(limit)} ({limit:,} bytes), the largest allowed",
                f"{advice}, give JSON lines in place of one array, or check that it is text",
            )


@contextmanager
def _line_reader(stream: IO[bytes]) -> Iterator[tuple[Callable[[int], bytes], tuple[bytes, ...]]]:
    """What reads a line of ``stream`` with its end, or so many bytes of it; and the characters that end lines."""
    layers: list[Any] = [stream]
    if not hasattr(stream, "peek"):
        layers.append(io.BufferedReader(cast("io.RawIOBase", stream)))
    try:
        if b"\r" not in layers[-1].peek(_BLOCK).partition(b"\n")[0].rstrip(b"\r"):
            yield layers[-1].readline, (b"\n",)
        else:
            text = io.TextIOWrapper(layers[-1], "latin-1", newline="")
            layers.append(text)
            yield lambda size: text.readline(size).encode("latin-1"), (b"\n", b"\r")
    finally:
        for layer in reversed(layers[1:]):
            with suppress(ValueError):  # the stream is closed
                layer.detach()  # else it closes the stream


def _whole_characters(data: bytes) -> tuple[bytes, bytes]:
    """Split ``data`` before its last UTF-8 character, which may be incomplete."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] >= 0xC0:
            return data[:-back], data[-back:]
        if data[-back] < 0x80:
            break
    return data, b""


def _refuse_binary(line: bytes, name: str, *, is_first: bool) -> None:
    if is_first and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name} is UTF-16, not UTF-8", "convert it, such as with iconv -f UTF-16 -t UTF-8")
    if b"\0" in line:
        raise InputError(f"{name} is not text: it has NUL bytes", "give a UTF-8 text file")


def tar_members(stream: IO[bytes], name: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and stream of the files in the tar archive ``name``, in order, without extracting them.

    Replaces bytes of names that are not UTF-8. Raises ``InputError`` for a link, a device or a pipe, and for a path
    that is absolute or leads out of the archive.
    """
    with tarfile.open(fileobj=stream, mode="r|", errors="replace") as archive:
        while member := archive.next():
            _refuse(member, name)
            if member.isfile() and (content := archive.extractfile(member)):
                yield member.name, content
            # Free the members, which tarfile collects; a bulk archive has hundreds of thousands.
            archive.members = []  # type: ignore[attr-defined]


def _refuse(member: tarfile.TarInfo, archive: str) -> None:
    where = f"{archive}:{member.name}"
    if member.issym() or member.islnk():
        raise InputError(
            f"{where} is a link to {member.linkname}, which is not followed",
            "pack the file itself (tar --dereference --hard-dereference)",
        )
    if member.isdev():
        raise InputError(f"{where} is a device or a pipe, not a file", "pack files alone")
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"{where} is a path that leads out of the archive", "pack it again with relative paths")
