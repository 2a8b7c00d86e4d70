"""``greenadapt push`` to a stand-in of the model hub, through the hub's own library."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run, contents, last_line
from tests.support.file_server import answering
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
    assert (report["repo"], report["private"]) == ("me/model", True)
    assert report["url"].startswith(f"{hub.url}/me/model/commit/")
    assert {entry["path"]: entry["bytes"] for entry in report["files"]} == {
        n: len(c) for n, c in contents(model).items()
    }


def test_what_stays_here(run_alone: Run, model: Path, hub: Hub, tmp_path: Path) -> None:
    published = set(contents(model))
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "id").write_text("secret")
    (model / "elsewhere").symlink_to(secret)
    (model / "id").symlink_to(secret / "id")
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


def test_a_dry_run_lists_the_files_and_asks_nothing(run_alone: Run, model: Path, hub: Hub) -> None:
    hub.refuses = 500
    report = json.loads(run_alone("push", model, "me/model", "--dry-run", "--json").stdout)
    assert report["url"] is None
    assert {entry["path"] for entry in report["files"]} == set(contents(model))
    assert "model.safetensors" in run_alone("push", model, "me/model", "--dry-run").stdout


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
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in last_line(run_alone("push", model, "me/model", code=1))
    assert not hub.files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "content", "headers", "says"),
    [
        (200, b"[1,2]", {}, "does not answer as a model hub"),
        (200, b'{"url": 5}', {}, "does not answer as a model hub"),
        (200, b'{"url": "http://x/y/z", "id": [1]}', {}, ""),
        (200, b"<html>log in</html>", {"Content-Type": "text/html"}, "does not answer as a model hub"),
        (200, b"[" * 100_000, {}, "does not answer as a model hub"),
        (200, b"", {}, "does not answer as a model hub"),
        (200, b"{}", {"Content-Encoding": "gzip"}, "HF_ENDPOINT"),
        (302, b"", {"Location": "/api/again"}, "HF_ENDPOINT"),
        (302, b"", {"Location": "http://["}, "HF_ENDPOINT"),
        (404, b"<html>nothing</html>", {"Content-Type": "text/html"}, "HF_ENDPOINT"),
        (404, b"[" * 100_000, {}, "HF_ENDPOINT"),
        (418, b'{"error": ["a\\nb"]}', {}, "418"),
        (500, b'{"error": "busy"}', {}, "try again later"),
    ],
)
def test_what_is_no_hub_is_said_in_one_line(
    run_alone: Run,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    content: bytes,
    headers: dict[str, str],
    says: str,
) -> None:
    from huggingface_hub import constants

    with answering(status, content, {"Content-Type": "application/json", **headers}) as address:
        in_hub = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", in_hub)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        refused = run_alone("push", model, "me/model", code=1)
        assert len([line for line in refused.stderr.splitlines() if line.startswith("greenadapt: ")]) == 1
        assert "Traceback" not in refused.output
        assert says in last_line(refused)
        assert address in last_line(refused) or "HF_ENDPOINT" not in last_line(refused)
        assert TOKEN not in refused.output
        if status != 500:  # which is tried again
            opened = run_alone("w2v", "-m", "org/name", "-c", "demo", code=1)
            assert "Traceback" not in opened.output


@pytest.mark.parametrize("repo", ["model", "me/a/b", "me/..", "-", "me/mo del"])
def test_an_invalid_name_is_wrong_usage(repo: str, run_alone: Run, model: Path) -> None:
    assert "OWNER/" in last_line(run_alone("push", model, "--", repo, code=2)) or repo == "-"


def test_a_damaged_result_is_not_published(run_alone: Run, hub: Hub, corpus_folder: Path) -> None:
    (corpus_folder / "tokenizer.json").write_text("{}")
    message = last_line(run_alone("push", corpus_folder, "me/model", code=1))
    assert "tokenizer.json" in message
    assert not hub.files


@pytest.fixture
def corpus_folder(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> Path:
    base = tiny_model(name="base", initializer_range=0.1)
    text = " ".join(["tachycardia is a fast heart rate"] * 30)
    (tmp_path / "text.txt").write_text(f"{text}\n" * 3)
    run_alone("adapt", "--corpus", "text.txt", "--model", base, "--out", "made", "--engine", "gensim", "--min-count", 1)
    return tmp_path / "made"
