"""``greenadapt push`` to a stand-in of the model hub, through the hub's own library."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, contents, last_line
from tests.support.hub import TOKEN, Hub
from tests.support.small_tasks import TinyModel, adapted

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the hub's own library


@pytest.fixture
def model(tiny_model: TinyModel) -> Path:
    folder = adapted(tiny_model)
    (folder / "README.md").write_text("---\ntags: [a]\n---\n# a\n")
    return folder


def test_the_folder_is_on_the_hub_as_it_is(run_alone: Run, model: Path, hub: Hub) -> None:
    report: dict[str, Any] = json.loads(run_alone("push", model, "me/model", "--private", "--json").stdout)
    assert {path: content for (_, _, path), content in hub.files.items()} == contents(model)
    assert {(repo, revision) for repo, revision, _ in hub.files} == {("me/model", "main")}
    assert hub.repos == {"me/model": True}
    assert report["repo"] == "me/model"
    assert report["url"].startswith(f"{hub.url}/me/model/commit/")


def test_what_stays_here(run_alone: Run, model: Path, hub: Hub) -> None:
    published = set(contents(model))
    for name in (
        ".env",
        ".git/config",
        "seeds/0/predictions.jsonl",
        "seeds/0/tasks/ner/predictions-test.jsonl",
        "seeds/0/tasks/ner/logits-test.safetensors",
        "seeds/1/logits.safetensors",
        "seeds/1/history.jsonl",
        "[a]*.json",
    ):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text("{}")
    run_alone("push", model, "me/model")
    assert {path for _, _, path in hub.files} == {*published, "[a]*.json", "seeds/1/history.jsonl"}
    assert hub.repos == {"me/model": False}


def test_refusals_name_what_to_do_and_no_token(
    run_alone: Run, model: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.refuses = 403
    refused = run_alone("push", model, "me/model", code=1)
    assert "me/model" in last_line(refused)
    assert "HF_TOKEN" in last_line(refused)
    assert TOKEN not in refused.output
    hub.refuses = None
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "401" in last_line(run_alone("push", model, "me/model", code=1))
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "127.0.0.1:9" in last_line(run_alone("push", model, "me/model", code=1))
    assert not hub.files
