"""Tar archives, made in memory."""

import io
import tarfile
from collections.abc import Mapping


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A tar archive of files by name."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()
