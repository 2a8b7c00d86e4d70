"""``greenadapt push`` to a stand-in of the model hub; the hub's own library chooses the files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, contents, last_line
from tests.support.file_server import answering
from tests.support.hub import TOKEN, URL, Hub
from tests.support.small_tasks import TinyModel, adapted


@pytest.fixture
def model(tiny_model: TinyModel) -> Path:
    folder = adapted(tiny_model)
    (folder / "README.md").write_text("---\ntags: [a]\n---\n# a\n")
    return folder


def test_the_folder_is_on_the_hub_as_it_is(run_alone: Run, model: Path, hub: Hub) -> None:
    report: dict[str, Any] = json.loads(run_alone("push", model, "me/model", "--private", "--json").stdout)
    assert {path: content for (_, path), content in hub.files.items()} == contents(model)
    assert hub.repos == {"me/model": True}
    assert report["repo"] == "me/model"
    assert report["url"].startswith(f"{URL}/me/model/commit/")


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
    assert {path for _, path in hub.files} == {*published, "[a]*.json", "seeds/1/history.jsonl"}
    assert hub.repos == {"me/model": False}


@pytest.mark.parametrize(("status", "cause"), [(403, "HF_TOKEN"), (None, "network")])
def test_a_refusal_names_what_to_do_and_no_token(
    status: int | None, cause: str, run_alone: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with answering(status or 200, b"{}", {}) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address if status else "http://127.0.0.1:9")
        result = run_alone("push", model, "me/model", code=1)
    assert cause in last_line(result)
    assert constants.ENDPOINT in last_line(result)
    assert TOKEN not in result.output
