"""What compressed files unpack to, up to a limit, and which members of tar archives are read."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from greenadapt.config import TextLimits
from greenadapt.errors import InputError, byte_size

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
