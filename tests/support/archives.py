"""Compressed files and tar archives, made in memory."""

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Mapping

from backports import zstd

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": zstd.compress,
}
"""Suffix → what compresses bytes."""


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A tar archive of files by name."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()
