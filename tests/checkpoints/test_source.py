from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.checkpoints.provenance import starting_model
from greenadapt.checkpoints.source import find_model, model_name
from greenadapt.errors import InputError, MissingError
from greenadapt.storage.names import path_name
from tests.support.small_tasks import facts_file


def test_the_offline_model_needs_no_network() -> None:
    model = find_model("minilm")
    assert (model.name, model.source) == ("minilm", "minilm")
    assert (model.folder / "model.safetensors").is_file()


def test_a_hub_id_is_one_folder_name() -> None:
    assert model_name("org/name") == "org--name"


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
    found = starting_model("org/name")
    assert (found.name, found.source) == ("tiny-medicine", "org/name")
