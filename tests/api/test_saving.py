"""Models are saved, opened again, published and called as those of transformers are, and nobody's files are lost."""

import os
import shutil
from pathlib import Path

import pytest
from transformers import AutoModel

import greenadapt
from greenadapt.config import ReadingOptions
from greenadapt.errors import ConflictError, UsageError
from tests.conftest import Run, contents
from tests.support.hub import URL, Hub
from tests.support.small_tasks import TinyModel, adapted, facts_file

TEXTS = ["the virus", "a patient with tachycardia"]


@pytest.fixture
def model(tiny_model: TinyModel) -> greenadapt.AdaptedModel:
    folder = adapted(tiny_model)
    facts_file(folder)
    return greenadapt.AdaptedModel(folder)


def test_a_copy_is_the_same_model_without_hidden_files(model: greenadapt.AdaptedModel, tmp_path: Path) -> None:
    expected = contents(model.folder)
    (model.folder / ".greenadapt").write_text("{}")
    saved = model.save_pretrained(tmp_path / "models" / "medicine")
    assert saved == tmp_path / "models" / "medicine"
    assert contents(saved) == expected
    again = greenadapt.AdaptedModel.from_pretrained(saved)
    assert again.words == model.words
    assert (
        AutoModel.from_pretrained(saved).config.vocab_size == AutoModel.from_pretrained(model.folder).config.vocab_size
    )


def test_a_task_model_is_saved_whole_and_predicts_as_before(two_tasks: Path, tmp_path: Path) -> None:
    model = greenadapt.TaskModel.from_pretrained(two_tasks, task="ill.1")
    saved = model.save_pretrained(tmp_path / "saved")
    assert contents(saved) == contents(two_tasks)
    assert (saved / "manifest.json").is_file()
    again = greenadapt.TaskModel.from_pretrained(str(saved), "ill.1", ReadingOptions(max_length=32))
    assert again(TEXTS) == again.predict(TEXTS) == model(TEXTS)
    assert again("the virus") == again.predict("the virus")
    assert list(again.tasks) == ["ill.1"]
    assert list(greenadapt.TaskModel.from_pretrained(saved).tasks) == ["ner", "ill.1"]


def test_a_copy_goes_to_a_new_or_empty_folder(model: greenadapt.AdaptedModel, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert contents(model.save_pretrained(tmp_path / "empty")) == contents(model.folder)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(model.folder)
    before = contents(tmp_path)
    for name in ("file", "empty", "link", model.folder.name):
        with pytest.raises(ConflictError, match="exists: give a new folder"):
            model.save_pretrained(tmp_path / name)
    assert contents(tmp_path) == before


def test_links_of_a_cache_become_files(model: greenadapt.AdaptedModel, tmp_path: Path) -> None:
    """As the hub's library keeps its downloads."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    model.folder.rename(blobs)
    shutil.copytree(blobs, snapshot, copy_function=os.symlink)
    saved = greenadapt.EncoderModel(snapshot).save_pretrained(tmp_path / "saved")
    assert contents(saved) == contents(blobs)
    assert not any(path.is_symlink() for path in saved.rglob("*"))


def test_what_goes_to_the_hub_is_what_the_command_uploads(
    model: greenadapt.AdaptedModel, hub: Hub, run_alone: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (model.folder / "README.md").write_text("---\ntags: [a]\n---\n# a\n")
    run_alone("push", model.folder, "me/theirs")
    theirs = {path: content for (repo, path), content in hub.files.items() if repo == "me/theirs"}
    capsys.readouterr()
    url = model.push_to_hub("me/ours", private=True, progress=False)
    assert {path: content for (repo, path), content in hub.files.items() if repo == "me/ours"} == theirs
    assert url.startswith(f"{URL}/me/ours/commit/")
    assert hub.repos == {"me/theirs": False, "me/ours": True}
    assert capsys.readouterr() == ("", "")
    with pytest.raises(UsageError, match="OWNER/NAME"):
        model.push_to_hub("model")
