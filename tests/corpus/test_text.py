"""Archives with more than files."""

import io
import tarfile
from pathlib import Path

import pytest

from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.errors import InputError


def read(path: Path) -> int:
    return sum(1 for _ in open_corpus(find_recipe(str(path)), path.parent).documents())


def tar_with(path: Path, name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        archive.addfile(member)
        good = tarfile.TarInfo("good.txt")
        good.size = 5
        archive.addfile(good, io.BytesIO(b"good\n"))
    return path


@pytest.mark.parametrize(
    ("name", "kind", "target", "reason"),
    [
        ("/etc/x.txt", tarfile.REGTYPE, "", "leads out of the archive"),
        ("a/../../x.txt", tarfile.REGTYPE, "", "leads out of the archive"),
        ("x.txt", tarfile.SYMTYPE, "/etc/passwd", "a link to /etc/passwd"),
        ("x.txt", tarfile.LNKTYPE, "../secret.txt", r"a link to \.\./secret\.txt"),
        ("x.txt", tarfile.FIFOTYPE, "", "a device or a pipe"),
    ],
)
def test_an_archive_holds_files_alone(tmp_path: Path, name: str, kind: bytes, target: str, reason: str) -> None:
    path = tar_with(tmp_path / "a.tar", name, kind, target)
    with pytest.raises(InputError, match=rf"a\.tar:.*x\.txt is .*{reason}.*: pack"):
        read(path)
    assert read(tar_with(tmp_path / "b.tar", "folder", tarfile.DIRTYPE)) == 1
