from pathlib import Path

import pytest

from greenadapt.checkpoints.source import find_model
from greenadapt.errors import MissingError
from greenadapt.storage.files import expanded, path_name, short


def test_a_path_is_named_by_its_last_part_and_its_place() -> None:
    one, other = path_name("/a/bert.v2.tar.gz"), path_name("/b/bert.v2.tar.gz")
    assert one != other
    assert one.startswith("bert-")
    assert len(one) == len("bert-") + 8
    assert path_name("https://x.org/../?").startswith("unnamed-")
    for long in ("a" * 250, "文" * 83):
        assert len(path_name(f"/{long}.txt").encode()) < 120


def test_the_home_of_nobody_is_a_path_like_any_other() -> None:
    assert expanded("~nobody-of-that-name/x") == Path("~nobody-of-that-name/x")
    with pytest.raises(MissingError, match="~nobody-of-that-name/x"):
        find_model("~nobody-of-that-name/x")


def test_others_read_a_path_from_the_working_folder_or_by_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "me"
    (home / "work" / "data").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "work")
    for path in ("data", "./data", home / "work" / "data", "~/work/data", "../work/data"):
        assert short(str(path)) == "data"
    assert short(str(home / "work" / "gone" / "file.txt")) == "gone/file.txt"
    (home / "work" / "data" / "link").symlink_to("/")
    assert short("data/link") == "data/link"
    for path in (tmp_path / "private", "~/private", "/not/private", "s3://bucket/private", "https://h/private?token=x"):
        assert short(str(path)) == "private"
    assert (short(".."), short(".")) == ("me", "work")
    for name in ("org/model", "minilm", "org/data/part:train"):
        assert short(name) == name
    for folder in (tmp_path, "/"):
        monkeypatch.chdir(folder)
        assert short(str(home / "work" / "data")) == "data"
