"""Bombs, and archives with more than files."""

import io
import tarfile
from pathlib import Path

import pytest

from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.errors import InputError
from greenadapt.tasks.ner import NerTask
from tests.conftest import Notes
from tests.support.archives import PACKERS, tar_of

BOMB = b"the same again\n" * 200_000


@pytest.fixture(autouse=True)
def few_are_always_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenadapt.corpus.text.ALWAYS_UNPACKED", 1 << 20)


def read(path: Path) -> int:
    return sum(1 for _ in open_corpus(find_recipe(str(path)), path.parent).documents())


@pytest.mark.slow
@pytest.mark.parametrize(
    "suffix", [suffix if suffix == ".gz" else pytest.param(suffix, marks=pytest.mark.long) for suffix in PACKERS]
)
def test_a_bomb_is_stopped(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACKERS[suffix](BOMB))
    with pytest.raises(InputError, match=r"a\.txt\..* bytes unpack to over .*200 times.*unpack it yourself"):
        read(path)
    path.write_bytes(PACKERS[suffix](BOMB[: 1 << 20]))
    assert read(path) > 60_000  # so little is always unpacked


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.zst"])
def test_a_bomb_within_an_archive_is_stopped(tmp_path: Path, suffix: str) -> None:
    inner = PACKERS[".gz"](BOMB)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACKERS[".zst" if suffix.endswith("zst") else ".gz"](tar_of({"b.txt.gz": inner})))
    with pytest.raises(InputError, match=r"a\..*:b\.txt\.gz: .*unpack to over"):
        read(path)


@pytest.mark.slow
def test_labels_have_the_limit_too(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(PACKERS[".gz"](b"the\tO\n" * 500_000))
    with pytest.raises(InputError, match=r"a\.tsv\.gz: .*more than 200 times as much: unpack it yourself"):
        NerTask().read(str(tmp_path / "a.tsv.gz"), Notes())


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
        ("/etc/cron.d/x.txt", tarfile.REGTYPE, "", "leads out of the archive"),
        ("a/../../x.txt", tarfile.REGTYPE, "", "leads out of the archive"),
        ("x.txt", tarfile.SYMTYPE, "/etc/passwd", "a link to /etc/passwd"),
        ("x.txt", tarfile.LNKTYPE, "../secret.txt", r"a link to \.\./secret\.txt"),
        ("x.txt", tarfile.CHRTYPE, "", "a device or a pipe"),
        ("x.txt", tarfile.BLKTYPE, "", "a device or a pipe"),
        ("x.txt", tarfile.FIFOTYPE, "", "a device or a pipe"),
    ],
)
def test_an_archive_holds_files_alone(tmp_path: Path, name: str, kind: bytes, target: str, reason: str) -> None:
    path = tar_with(tmp_path / "a.tar", name, kind, target)
    with pytest.raises(InputError, match=rf"a\.tar:.*x\.txt is .*{reason}.*: pack"):
        read(path)
    assert read(tar_with(tmp_path / "b.tar", "folder", tarfile.DIRTYPE)) == 1
