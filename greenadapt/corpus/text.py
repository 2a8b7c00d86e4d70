"""Bytes to text, line by line and within limits, also from a pipe and from compressed files and archives."""

import codecs
import io
import json
import os
import re
import select
import stat
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO, Any, Protocol

from greenadapt.config import TextLimits
from greenadapt.errors import InputError, byte_size, counted
from greenadapt.progress import Progress
from greenadapt.storage.files import Json

_BLOCK = 1 << 16


_LINES_CHECKED = 100
"""A NUL byte in one of the first lines means that a file is binary; later ones are noise in the text."""


_TEXT = re.compile(rb"\S")
_LINE_END, _PARAGRAPH_END = re.compile(rb"\n"), re.compile(rb"\n[^\S\n]*\n")


UNALTERABLE = TextLimits(option="", compression_option="")
"""Limits that no option changes."""


_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """A text: its paragraphs, one line each, and where it comes from."""

    lines: tuple[str, ...]
    name: str = ""
    id: str = ""
    """The record's own id, if any."""
    title: str = ""
    """Of the paper or the record, if it has one."""


@dataclass(frozen=True)
class LineRange:
    """The lines of a file to read: those after ``n_bytes`` bytes, which hold ``n_lines`` lines, up to line ``last``."""

    n_bytes: int = 0
    n_lines: int = 0
    last: int | None = None
    """Counted from 1; ``None``: to the end of the file."""


@dataclass
class Decoder:
    """UTF-8 bytes to text: a broken byte sequence is counted and replaced by U+FFFD, or refused if ``strict``."""

    strict: bool = False
    lenient: bool = False
    """Whether JSON lines that are not JSON objects are skipped and counted as ``broken_lines``."""
    limits: TextLimits = UNALTERABLE
    counts: Counter[str] = field(default_factory=Counter)
    """``replaced``: broken sequences; the readers add ``documents``, ``lines`` and what they skipped."""
    spans: dict[str, LineRange] = field(default_factory=dict)
    """By name, the lines of files of which not all are read."""

    def decode(self, data: bytes, where: str) -> str:
        """``data`` as text; InputError naming ``where`` and the byte if it is not UTF-8 and ``strict``."""
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

    def without_surrogates(self, text: str, where: str) -> str:
        """``text`` as it can be written: a lone surrogate, which JSON and Python can escape, is replaced."""
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

    def record_without_surrogates(self, record: Json, where: str) -> Json:
        """The same for all texts and names in a record of JSON's types."""
        text = json.dumps(record, ensure_ascii=False)
        whole = self.without_surrogates(text, where)
        if whole is text:
            return record
        clean: Json = json.loads(whole)
        return clean

    def warn_replaced(self, name: str, progress: Progress) -> None:
        """Warn how much of ``name`` was replaced, if any."""
        if replaced := self.counts["replaced"]:
            one, many = "byte sequence or character is", "byte sequences or characters are"
            progress.warn(f"{name}: {counted(replaced, one, many)} not UTF-8, replaced by U+FFFD")

    def lines(self, stream: "LineSource", name: str) -> Iterator[tuple[int, str]]:
        """The numbered lines (from 1), ends kept, a byte order mark dropped; InputError if the file is binary."""
        span = self.spans.get(name, LineRange())
        number, most = span.n_lines, min(_BLOCK, self.limits.max_document_bytes + 1)
        while number != span.last and (line := stream.readline(most)):
            number += 1
            if number <= _LINES_CHECKED:
                _refuse_binary(line, name, is_first=number == 1)
            if not line.endswith(b"\n"):
                line += self._rest_of_line(stream, len(line), f"{name}, line {number}")
            text = line.removeprefix(_BOM) if number == 1 else line
            yield number, self.decode(text, f"{name}, line {number}")

    def joined(self, lines: Iterable[tuple[int, str]], name: str) -> str:
        """Numbered lines as one text; ``InputError`` if they are longer than the limit of a document."""
        size, text = 0, io.StringIO()  # a list of short lines would take 30 times as much memory
        for _, line in lines:
            size += len(line) if line.isascii() else len(line.encode(errors="surrogatepass"))
            self.check_size(size, name)
            text.write(line)
        return text.getvalue()

    def blocks(self, stream: IO[bytes], name: str, begin: bytes = b"") -> Iterator[bytes]:
        """``begin`` and the rest of the file as valid UTF-8, in blocks of whole characters, and of whole lines unless
        these are very long.
        """
        start, rest = 1, begin
        while read := stream.read(_BLOCK):
            block, rest = _whole_characters(rest + read + stream.readline(_BLOCK))
            yield self.decode(block, f"{name}, from line {start}").encode()
            start += block.count(b"\n")
        if rest:
            yield self.decode(rest, f"{name}, from line {start}").encode()

    def check_size(self, n_bytes: int, where: str) -> None:
        """Raise ``InputError`` if a document of ``n_bytes`` or more is longer than the limit."""
        if n_bytes > (limit := self.limits.max_document_bytes):
            raise InputError(
                f"{where}: a document of over {byte_size(limit)} ({limit:,} bytes), the largest allowed",
                f"{f'raise {self.limits.option}' if self.limits.option else 'split it'}, or check that it is text",
            )

    def check_words(self, line: str, where: str) -> None:
        """Raise ``InputError`` if there are more characters between two spaces than the limit."""
        if len(line) <= self.limits.max_word_chars:
            return
        longest, begin = self.limits.max_word_chars, 0
        while begin + longest < len(line):
            space = line.rfind(" ", begin, begin + longest + 1)
            if space < 0:
                end = line.find(" ", begin)
                n = (len(line) if end < 0 else end) - begin
                raise InputError(
                    f"{where}: {n:,} characters without a space, the longest word allowed has {longest:,}",
                    "raise --max-word-chars, or check that it is text",
                )
            begin = space + 1

    def _rest_of_line(self, stream: "LineSource", n_read: int, where: str) -> bytes:
        """The rest of a line after its first ``n_read`` bytes, up to the limit."""
        rest = stream.readline(max(0, self.limits.max_document_bytes + 1 - n_read))
        self.check_size(n_read + len(rest), where)
        return rest


class LineSource(Protocol):
    """Bytes that are read by line: an open binary file, or ``ArrivingLines``."""

    def readline(self, size: int = -1, /) -> bytes:
        """The next line with its end, or its first ``size`` bytes; nothing at the end of the input."""


class ArrivingLines:
    """The lines of a pipe or a terminal, which knows whether the next one is there already."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._held = bytearray()
        self._has_ended = False

    @classmethod
    def of(cls, stream: IO[bytes]) -> "ArrivingLines | None":
        """``None`` for a file, and for a compressed pipe, of which nobody knows what more is in it."""
        if not isinstance(stream, io.BufferedReader) or not isinstance(stream.raw, io.FileIO):
            return None
        return None if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else cls(stream)

    def readline(self, size: int = -1, /) -> bytes:
        """See ``LineSource``; waits for it."""
        seen = 0
        while (end := self._held.find(b"\n", seen) + 1) == 0:
            seen = len(self._held)
            if 0 <= size <= seen or not self._read():
                break
        end = end or len(self._held)
        end = end if size < 0 else min(end, size)
        line = bytes(self._held[:end])
        del self._held[:end]
        return line

    def would_wait(self, *, for_paragraph: bool = False) -> bool:
        """Whether no line with text, or no paragraph with the blank line after it, is there yet, nor the end."""
        end = _PARAGRAPH_END if for_paragraph else _LINE_END
        while not self._has_text_before(end) and len(self._held) < _BLOCK and not self._has_ended:
            if not select.select([self._stream], [], [], 0)[0]:
                return True
            self._read()
        return False

    def _has_text_before(self, end: re.Pattern[bytes]) -> bool:
        text = _TEXT.search(self._held)
        return text is not None and end.search(self._held, text.end()) is not None

    def _read(self) -> bool:
        """Read what is there, or wait for something; whether there was anything."""
        if not self._has_ended:  # a terminal may be read again after its end
            read = self._stream.read1(_BLOCK)
            self._held += read
            self._has_ended = not read
        return not self._has_ended


def _whole_characters(data: bytes) -> tuple[bytes, bytes]:
    """``data`` up to the last UTF-8 character, which may be incomplete, and the rest."""
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
        raise InputError(f"{name} is not text: it has NUL bytes", "give a UTF-8 text file, or its format with --format")


ALWAYS_UNPACKED = 64 << 20
"""Bytes that any compressed file may unpack to: some small ones repeat one line."""
_LONGEST_HEADER = 1 << 20  # bytes; names that are longer than those of a plain header, which are read at once
_LONG_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


def unpacked(packed: IO[bytes], name: str, limits: TextLimits) -> IO[bytes]:
    """The bytes of a compressed file or member by the suffix of its ``name``; ``packed`` itself for other names.

    Reading raises ``InputError`` when it unpacks to more than the limits allow; closes ``packed`` with it.
    """
    from smart_open.compression import compression_wrapper

    counted = _Counted(packed)
    suffix = ".gz" if name.lower().endswith(".tgz") else "infer_from_extension"
    stream: Any = compression_wrapper(counted, "rb", suffix, filename=name)  # type: ignore[arg-type]
    if stream is counted:
        return packed
    return io.BufferedReader(_Unpacked(stream, counted, name, limits), 1 << 16)


class _Counted:
    """A stream that knows how much was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.n = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.n += len(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Unpacked(io.RawIOBase):
    """An unpacked stream that ends with ``InputError`` beyond the limit."""

    def __init__(self, stream: IO[bytes], packed: _Counted, name: str, limits: TextLimits) -> None:
        self._stream, self._packed, self._name, self._limits = stream, packed, name, limits
        self._n = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read: int = self._stream.readinto(buffer)  # type: ignore[attr-defined]
        self._n += read
        times = self._limits.max_compression
        if self._n > max(ALWAYS_UNPACKED, times * self._packed.n):
            option = f"raise {self._limits.compression_option}, or " if self._limits.compression_option else ""
            raise InputError(
                f"{self._name}: {byte_size(self._packed.n)} unpack to over {byte_size(self._n)}, more than "
                f"{times:,} times as much",
                f"{option}unpack it yourself if it is what it should be",
            )
        return read

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._packed.close()
        super().close()


class _Member(tarfile.TarInfo):
    """A header whose long names have a limit, since they are read at once, and whose numbers are numbers."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _LONG_HEADERS and not 0 <= self.size <= _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes, the longest allowed has {_LONGEST_HEADER:,}")
        try:
            return super()._proc_member(archive)  # type: ignore[misc]
        except ValueError as error:  # a number of an extended header
            raise tarfile.ReadError(str(error)) from None


def tar_members(stream: IO[bytes], name: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of the tar archive ``name`` in order, each with a stream; nothing is extracted. Of names that are not
    UTF-8 other bytes are replaced.

    Raises ``InputError`` for a link, a device or a pipe, and for a path that is absolute or leads out.
    """
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member, errors="replace") as archive:
        while member := archive.next():
            _refuse(member, name)
            if member.isfile() and (content := archive.extractfile(member)):
                yield member.name, content
            # tarfile remembers every member; a bulk archive has hundreds of thousands of them.
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
