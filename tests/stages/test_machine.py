"""``doctor``: what works on this machine, and what to do about what does not."""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.stages import machine as module
from tests.conftest import Run


def checks(*arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", *arguments, "--json"])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return {row["check"]: row for row in map(json.loads, result.stdout.splitlines())}


@pytest.fixture
def hub() -> Iterator[str]:
    """A server that answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_extras_are_those_of_the_package_with_a_line_each(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some of an extra, all or nothing of it may be installed."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def version(name: str) -> str:
        if name in ("fastapi", "uvicorn", "ray"):
            raise PackageNotFoundError
        return "1.2"

    monkeypatch.setattr(module, "version", version)
    found = checks()
    with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    for extra in declared.keys() - {"docs"}:  # which builds the site
        said = set(re.findall(r"[a-z][\w.-]+", found[extra]["found"])) - {"not", "installed"}
        names = {re.split(r"[\[>=]", each)[0] for each in declared[extra]}
        assert said
        assert said <= names
        lacks = said & {"fastapi", "uvicorn", "ray"}
        assert (found[extra]["state"], f"greenadapt[{extra}]" in found[extra]["advice"]) == (
            ("missing", True) if lacks else ("ok", False)
        )
    [line] = [line for line in run_alone("doctor").stdout.splitlines() if "fastapi" in line]
    assert line.startswith("missing  serve: prometheus-client 1.2; fastapi, uvicorn not installed: ")
    assert line.endswith('pip install "greenadapt[serve]"')


@pytest.mark.slow
def test_everything_is_checked_and_what_is_missing_has_advice(
    run_alone: Run, hub: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = checks()
    assert {"python", "numpy", "GPU", "cores", "memory", "fast engine", "workspace", "model minilm"} <= set(found)
    assert {"train", "sentence", "report", "s3"} <= set(found)
    assert {row["state"] for row in found.values()} <= {"ok", "missing"}
    assert all(row["advice"] for row in found.values() if row["state"] != "ok")
    assert (found["numpy"]["state"], "HF_HUB_OFFLINE" in found["model hub"]["found"]) == ("ok", True)
    assert str(tmp_path / "ws") in run_alone("doctor").stdout
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub)
    assert checks()["model hub"] == {**checks()["model hub"], "state": "ok", "found": f"{hub} answers (200)"}
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert checks()["model hub"]["state"] == "missing"
    assert not (tmp_path / "ws").exists()


def test_a_full_disk_is_a_problem(run_alone: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    found = checks(code=1)
    assert (found["workspace"]["state"], "clean" in found["workspace"]["advice"]) == ("problem", True)


@pytest.mark.parametrize(("missing", "state"), [({"gensim"}, "missing"), ({"gensim", "numba"}, "problem")])
def test_gensim_can_be_missing_where_numba_trains(
    monkeypatch: pytest.MonkeyPatch, missing: set[str], state: str
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = module.version

    def version(name: str) -> str:
        if name in missing:
            raise PackageNotFoundError
        return found(name)

    monkeypatch.setattr(module, "version", version)
    row = checks(code=0 if state == "missing" else 1)["gensim"]
    assert (row["state"], "Python 3.11 to 3.13" in row["advice"]) == (state, True)
