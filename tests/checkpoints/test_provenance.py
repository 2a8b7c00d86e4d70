"""Folders of adapted models: what decides their content, and what of a task goes along."""

import json
import shutil
from pathlib import Path

import pytest

from greenadapt.checkpoints.provenance import (
    adapted_input,
    base_id,
    copy_task,
    licence_of,
    model_input,
    read_facts,
    starting_model,
    task_input,
)
from greenadapt.checkpoints.source import PretrainedModel, find_model
from greenadapt.errors import InputError
from greenadapt.store.files import write_json
from greenadapt.store.workspace import Workspace
from tests.support.small_multitask import describe, fitted
from tests.support.small_tasks import TinyModel, adapted, facts_file, read_json

FILES = ("task.json", "memory.safetensors", "memory/model.safetensors")


def test_the_name_says_what_it_was_adapted_to(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    assert read_facts(folder) is None
    assert starting_model(str(folder)).name.startswith(folder.name)
    facts = facts_file(folder)
    assert read_facts(folder) == facts
    model = starting_model(str(folder))
    assert (model.name, model.source) == ("tiny-medicine", str(folder))


def test_a_model_cannot_name_a_folder_outside_the_workspace(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, name = adapted(tiny_model), "../../../elsewhere"
    write_json(folder / "greenadapt.json", {**facts_file(folder), "model": {"name": name, "source": "x"}})
    with pytest.raises(InputError, match="calls itself"):
        Workspace(tmp_path / "ws").find_result("corpus", starting_model(str(folder)).name, "w2v")


def test_a_model_of_the_hub_has_its_commit_in_the_manifest(tiny_model: TinyModel, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--owner--name" / "snapshots" / ("0123456789" * 4)
    snapshot.parent.mkdir(parents=True)
    plain = model_input(find_model(str(tiny_model().rename(snapshot))))
    assert plain.pop("revision") == snapshot.name
    assert "revision" not in model_input(find_model(str(snapshot.rename(tmp_path / "copied"))))


def test_the_base_is_a_hub_id_or_unknown(tiny_model: TinyModel, tmp_path: Path) -> None:
    assert base_id(PretrainedModel("org--name", tmp_path, "org/name")) == "org/name"
    folder = adapted(tiny_model)
    assert base_id(starting_model(str(folder))) is None
    config = read_json(folder / "config.json")
    names = {"org/name": "org/name", "/home/me/model": None, "m: x\nlicense: evil": None}
    for name, base in names.items():
        (folder / "config.json").write_text(json.dumps({**config, "_name_or_path": name}))
        assert base_id(starting_model(str(folder))) == base
    facts = facts_file(folder)
    for source, base in {"org/bert": "org/bert", "minilm": "sentence-transformers/all-MiniLM-L6-v2"}.items():
        write_json(folder / "greenadapt.json", {**facts, "model": {"name": "tiny", "source": source}})
        assert base_id(starting_model(str(folder))) == base


def test_each_file_decides_the_content_and_goes_along(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = adapted(tiny_model)
    model = starting_model(str(folder))
    (folder / "memory").mkdir()
    shutil.copyfile(folder / "tokenizer.json", folder / "memory" / "tokenizer.json")
    seen = {adapted_input(model)["sha256"]}
    for text in ("a", "b"):
        for name in FILES:
            (folder / name).write_text(text)
            seen.add(adapted_input(model)["sha256"])
    (folder / "words.safetensors").write_bytes(b"")
    seen.add(adapted_input(model)["sha256"])
    assert len(seen) == 1 + 2 * len(FILES) + 1
    copy_task(folder, tmp_path)
    assert [(tmp_path / name).read_text() for name in FILES] == ["b"] * 3
    (tmp_path / "empty").mkdir()
    copy_task(tmp_path / "empty", tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())


def test_the_tasks_of_an_encoder_go_along(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = tiny_model(name="many")
    describe(source, {name: fitted(tmp_path, name) for name in ("ner", "ill.1")})
    model = starting_model(str(source))
    seen = [adapted_input(model)["sha256"]]
    for name in ("tasks/ner/weights.safetensors", "tasks/ill.1/task.json", "multitask.json"):
        with open(source / name, "a") as file:
            file.write(" ")
        seen.append(adapted_input(model)["sha256"])
    assert len(set(seen)) == 4
    before = task_input(source)
    (source / "tasks" / "ner" / "weights.safetensors").write_text("other")
    assert before is not None
    assert before != task_input(source)
    assert task_input(tmp_path) is None
    (source / "seeds" / "1").mkdir(parents=True)
    copy_task(source, tmp_path / "copy")
    copied = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*.*")}
    files = {"multitask.json", "tasks/ner/task.json", "tasks/ner/weights.safetensors", "tasks/ill.1/task.json"}
    assert copied - {"tasks/ill.1"} == files


@pytest.mark.parametrize(
    ("card", "stated"),
    [
        (None, {}),
        ("---\nlicense: other\nlicense_name: own\n---\n", {"license": "other", "license_name": "own"}),
        ("---\nlicense: [mit, gpl]\n---\n", {}),
        ("---\n\udcff\n---\n", {}),
    ],
)
def test_the_licence_is_what_the_card_states(card: str | None, stated: dict[str, str], tmp_path: Path) -> None:
    if card is not None:
        (tmp_path / "README.md").write_bytes(card.encode(errors="surrogateescape"))
    assert licence_of(PretrainedModel("a", tmp_path, "a")) == stated
