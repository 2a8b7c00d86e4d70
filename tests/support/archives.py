"""Tar archives, made in memory."""

import io
import tarfile
from collections.abc import Mapping


def tar_of(members: Mapping[str, bytes | str]) -> bytes:
    """A tar archive of files by name, whose texts are UTF-8."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()
