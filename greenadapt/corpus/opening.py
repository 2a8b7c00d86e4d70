"""Text from files: decoding, decompression, remote and piped sources, and hashes of sources."""

import codecs
import hashlib
import io
import logging
import lzma
import os
import re
import select
import stat
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol
from urllib.parse import urlsplit

from greenadapt.config import TextLimits
from greenadapt.corpus.unpacking import unpacked
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.progress import Progress
from greenadapt.storage.files import Json, hash_json
from greenadapt.storage.names import short
from greenadapt.storage.outputs import COMPRESSIONS
from greenadapt.wording import byte_size, counted

_log = logging.getLogger(__name__)

_BLOCK = 1 << 16


_LINES_CHECKED = 100
"""A NUL byte in one of the first lines means that a file is binary; later ones are noise in the text."""


_TAR = re.compile(r"\.(tar(\.(gz|bz2|xz|zst))?|tgz)$")


STDIN = "-"


_TEXT = re.compile(rb"\S")
_LINE_END, _PARAGRAPH_END = re.compile(rb"\n"), re.compile(rb"\n[^\S\n]*\n")


_UNALTERABLE = TextLimits(option="", compression_option="")


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
class Span:
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
    limits: TextLimits = _UNALTERABLE
    counts: Counter[str] = field(default_factory=Counter)
    """``replaced``: broken sequences; the readers add ``documents``, ``lines`` and what they skipped."""
    spans: dict[str, Span] = field(default_factory=dict)
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

    def warn_replaced(self, name: str, progress: Progress) -> None:
        """Warn how much of ``name`` was replaced, if any."""
        if replaced := self.counts["replaced"]:
            one, many = "byte sequence or character is", "byte sequences or characters are"
            progress.warn(f"{name}: {counted(replaced, one, many)} not UTF-8, replaced by U+FFFD")

    def lines(self, stream: "LineSource", name: str) -> Iterator[tuple[int, str]]:
        """The numbered lines (from 1), ends kept, a byte order mark dropped; InputError if the file is binary."""
        span = self.spans.get(name, Span())
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


@contextmanager
def input_errors(name: str) -> Iterator[None]:
    """Turn the errors of a missing, unreadable, truncated or damaged file into one line with its name."""
    from backports.zstd import ZstdError

    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(f"{name} does not exist", "check the path") from error
    except (IsADirectoryError, PermissionError) as error:
        raise InputError(f"{name} cannot be read ({error.strerror})", "check the path and its permissions") from error
    except (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, ZstdError) as error:
        raise InputError(f"{name} is truncated or damaged ({error})", "fetch it or compress it again") from error
    except OSError as error:
        raise InputError(f"{name} cannot be read ({error})", "fetch it or compress it again") from error


@contextmanager
def open_binary(path: str, limits: TextLimits = _UNALTERABLE) -> Iterator[IO[bytes]]:
    """A file's bytes, from disk, http(s) or s3, decompressed by suffix (gz, bz2, xz, zst); see ``unpacked``."""
    _log.debug("reads %s", short(path) if "://" in path else path)  # an address may have a password
    with input_errors(path), _opened(path, limits) as stream:
        yield stream


def _opened(path: str, limits: TextLimits) -> IO[bytes]:
    if "://" not in path:
        file = open(path, "rb")  # noqa: SIM115
        return unpacked(file, path, limits) if is_compressed(path) else file
    import smart_open  # a fifth of a second

    opened: IO[bytes] = smart_open.open(path, "rb", compression="disable")
    return unpacked(opened, urlsplit(path).path, limits)


def is_read_once(source: str) -> bool:
    """Whether it can be read only once: standard input or another pipe, such as a shell's ``<(…)``."""
    path = Path(source)
    is_pipe = path.exists() and not path.is_file() and not path.is_dir() and not path.samefile(os.devnull)
    return source == STDIN or is_pipe


def note_terminal(source: str, progress: Progress) -> None:
    """Say that text is awaited if ``source`` is standard input and that is a terminal."""
    if source == STDIN and sys.stdin is not None and sys.stdin.buffer.isatty():
        progress.note("standard input is this terminal: type the text, and end it with Ctrl-D")


def refuse_read_once(source: str) -> None:
    """Raise ``InputError`` for standard input, a pipe or a device where a file is read more than once."""
    if is_read_once(source):
        raise InputError(f"{input_name(source)} is a pipe or a device, which can be read only once", "give a file")


def input_name(source: str) -> str:
    """The name of a file, or of standard input, ``-``, in messages."""
    return "standard input" if source == STDIN else source


@contextmanager
def open_input(source: str) -> Iterator[tuple[IO[bytes], str]]:
    """A file's bytes as from ``open_binary``, or those of standard input for ``-``, and its name in messages."""
    if source == STDIN:
        if sys.stdin is None:  # closed by the parent process
            raise MissingError("standard input is closed", "give a file to read")
        yield sys.stdin.buffer, input_name(source)
        return
    with open_binary(source) as stream:
        yield stream, source


@contextmanager
def open_member(stream: IO[bytes], name: str, limits: TextLimits = _UNALTERABLE) -> Iterator[IO[bytes]]:
    """The bytes of an archive's member, decompressed by the suffix of its name; see ``unpacked``."""
    with input_errors(name), unpacked(stream, name, limits) as content:
        yield content


def squeeze(text: str) -> str:
    """``text`` stripped, with every run of white space replaced by one space."""
    return " ".join(text.split())


def data_suffix(path: str) -> str:
    """The suffix that tells a file's format, such as ``.jsonl`` of ``A.JSONL.GZ``: in lower case and without that of
    the compression; "" if there is none.
    """
    name = Path(path)
    if name.suffix.lower() in COMPRESSIONS:
        name = name.with_suffix("")
    return name.suffix.lower()


def is_compressed(path: str) -> bool:
    """Whether it is the name of a compressed file."""
    return path.lower().endswith((*COMPRESSIONS, ".tgz"))


def is_tar(path: str) -> bool:
    """Whether it is the name of a tar archive, compressed or not."""
    return bool(_TAR.search(path.lower()))


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder that it is in, is hidden, as the copies ``._a.txt`` in archives of some systems."""
    return any(part.startswith(".") and part not in (".", "..") for part in PurePosixPath(name).parts)


def path_sha256(path: Path) -> str:
    """SHA-256 of a file (streamed), or of names and contents of a folder's files but hidden ones, in hexadecimal."""
    if not path.is_dir():
        with input_errors(str(path)), open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file_path in sorted(path.rglob("*")):
        name = file_path.relative_to(path).as_posix()
        if file_path.is_file() and not is_hidden(name):
            digest.update(f"{name}\0{path_sha256(file_path)}\n".encode())
    return digest.hexdigest()


def refuse_twice(paths: Iterable[str]) -> None:
    """Raise ``UsageError`` for a path that is given twice."""
    seen = set()
    for path in paths:
        if path in seen:
            raise UsageError(f"{input_name(path)} is given twice", "give it once")
        seen.add(path)


def require_source(source: str) -> None:
    """Raise ``MissingError`` unless it is an existing file or folder, a data set on the hub, or a URL."""
    if not (Path(source).expanduser().exists() or "://" in source or is_hub_id(source)):
        raise MissingError(f"{source} does not exist", "check the path")


def source_input(source: str) -> Json:
    """A file, folder or data set as an input in a manifest: by content, a data set by id.

    Raises ``MissingError`` for a file that does not exist, ``InputError`` for a pipe.
    """
    refuse_read_once(source)
    path = Path(source).expanduser()
    if path.exists():
        return {"sha256": path_sha256(path), "path": str(path.absolute())}
    require_source(source)
    return {"sha256": hash_json(source), "source": source}


SEPARATORS = {".csv": ",", ".tsv": "\t"}


JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})


TABLE_SUFFIXES = frozenset(SEPARATORS)


CONLL_SUFFIXES = frozenset({".conll", ".bio", ".iob", ".iob2"})


_FILES = frozenset({*TABLE_SUFFIXES, *COMPRESSIONS, *JSON_SUFFIXES, *CONLL_SUFFIXES, ".txt", ".text"})


_PART = r"\w[\w.-]*"


# A name without an owner may be that of a format: the hub's library would then read the current folder.
HUB_ID = re.compile(rf"(?P<name>{_PART}/{_PART})(/(?P<configuration>{_PART}))?(:(?P<split>.+))?")


def is_hub_id(source: str) -> bool:
    """Whether ``source`` is a data set on the hub, ``owner/name[/configuration][:split]``, and neither an existing file
    nor named like one.
    """
    if "://" in source or Path(source).exists() or Path(source).suffix.lower() in _FILES:
        return False
    return HUB_ID.fullmatch(source) is not None


def hub_data_set(source: str) -> str | None:
    """The hub's id of the data set that ``source`` names; ``None`` for a file."""
    named = HUB_ID.fullmatch(source) if is_hub_id(source) else None
    return named and named["name"]
