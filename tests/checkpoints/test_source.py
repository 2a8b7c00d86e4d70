"""Models in folders, in the cache of the hub, and in a package."""

import json
import shutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from greenadapt.checkpoints.provenance import starting_model
from greenadapt.checkpoints.source import find_model, model_name
from greenadapt.errors import InputError, MissingError
from greenadapt.store.files import path_name
from tests.support.small_tasks import facts_file


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


UNWANTED = {"tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "code.py", "optimizer.pt", "1_Dense/code.py"}


@pytest.mark.parametrize("published", [{"vocab.txt", "pytorch_model.bin"}, {"tokenizer.json", "model.safetensors"}])
def test_what_is_downloaded_of_a_hub_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, published: set[str]
) -> None:
    remote, cache, expected = tmp_path / "remote", tmp_path / "cache", {*published, "config.json"}
    old_weights = {"pytorch_model.bin"} if "model.safetensors" in expected else set()
    for name in expected | UNWANTED | old_weights:
        (remote / name).parent.mkdir(parents=True, exist_ok=True)
        (remote / name).touch()
    (remote / "config.json").write_text(json.dumps({"model_type": "bert"}))

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
