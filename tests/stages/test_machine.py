"""``doctor``: what works on this machine, and what to do about what does not."""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from socket import create_server
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.errors import MissingError
from greenadapt.stages import machine as module
from greenadapt.vectors import engines
from tests.conftest import Run
from tests.support.file_server import serving
from tests.support.json_schema import check_json


def rows(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """Whatever the exit code is, all checks are printed."""
    result = CliRunner().invoke(app, ["doctor", *arguments, "--json"])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    check_json(["doctor", "--json"], result.stdout)
    return [json.loads(line) for line in result.stdout.splitlines()]


def checks(*arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in rows(*arguments, code=code) if row["kind"] == "check"}


@pytest.fixture(autouse=True)
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ray's temporary folder, where no cluster was started."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path / "ray"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def hub() -> Iterator[str]:
    """A server that answers."""
    with serving({"/": b""}) as server:
        yield server.address


def test_extras_are_those_of_the_package_with_a_line_each(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some of an extra, all or nothing of it may be installed."""

    def version(name: str) -> str:
        if name in ("fastapi", "uvicorn", "ray"):
            raise PackageNotFoundError
        return "1.2"

    monkeypatch.setattr(module, "version", version)
    result = checks()
    with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    for extra in declared.keys() - {"docs"}:  # which builds the site
        installed = set(re.findall(r"[a-z][\w.-]+", result[extra]["found"])) - {"not", "installed"}
        names = {re.split(r"[\[>=]", requirement)[0] for requirement in declared[extra]}
        assert installed
        assert installed <= names
        lacks = installed & {"fastapi", "uvicorn", "ray"}
        assert (result[extra]["state"], f"greenadapt[{extra}]" in result[extra]["advice"]) == (
            ("missing", True) if lacks else ("ok", False)
        )
    [line] = [line for line in run_alone("doctor").stdout.splitlines() if "fastapi" in line]
    assert line.startswith("missing  serve: fastapi, uvicorn not installed: ")
    assert line.endswith('pip install "greenadapt[serve]"')


@pytest.mark.slow
def test_a_numba_that_breaks_the_fast_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "greenadapt.vectors.engines.lanes", None)
    monkeypatch.delattr(engines, "lanes", raising=False)
    for name in ("chunks", "fast"):
        monkeypatch.delitem(sys.modules, f"greenadapt.vectors.engines.{name}", raising=False)
    check = checks()["fast engine"]
    assert (check["state"], "lanes" in check["found"]) == ("missing", True)


@pytest.mark.slow
def test_everything_is_checked_and_what_is_missing_has_advice(
    run_alone: Run, hub: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = checks()
    assert {"python", "numpy", "GPU", "cores", "memory", "fast engine", "workspace", "model minilm"} <= set(result)
    assert {"train", "report", "s3"} <= set(result)
    assert {row["state"] for row in result.values()} <= {"ok", "missing"}
    assert all(row["advice"] for row in result.values() if row["state"] != "ok")
    assert (result["numpy"]["state"], "HF_HUB_OFFLINE" in result["model hub"]["found"]) == ("ok", True)
    assert str(tmp_path / "ws") in run_alone("doctor").stdout
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub)
    assert checks()["model hub"] == {**checks()["model hub"], "state": "ok", "found": f"{hub} answers (200)"}
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert checks()["model hub"]["state"] == "missing"
    assert not (tmp_path / "ws").exists()


def test_a_full_disk_is_a_problem(run_alone: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    result = checks(code=1)
    assert (result["workspace"]["state"], "clean" in result["workspace"]["advice"]) == ("problem", True)


@pytest.mark.parametrize(("missing", "state"), [({"gensim"}, "missing"), ({"gensim", "numba"}, "problem")])
def test_gensim_can_be_missing_where_numba_trains(
    monkeypatch: pytest.MonkeyPatch, missing: set[str], state: str
) -> None:
    find_version = module.version

    def version(name: str) -> str:
        if name in missing:
            raise PackageNotFoundError
        return find_version(name)

    monkeypatch.setattr(module, "version", version)
    row = checks(code=0 if state == "missing" else 1)["gensim"]
    assert (row["state"], "Python 3.11 to 3.13" in row["advice"]) == (state, True)


def test_a_cluster_is_looked_at_only_where_there_is_one(
    run_alone: Run, no_cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray is not imported for one that was stopped, or killed: the file with its address stays."""
    addresses: list[str] = []

    def nodes(address: str) -> list[dict[str, Any]]:
        addresses.append(address)
        raise MissingError("nobody answers", "start it")

    monkeypatch.setattr(module, "cluster_rows", nodes)
    with create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        no_cluster.mkdir()
        (no_cluster / "ray_current_cluster").write_text(address)
        assert checks()["Ray cluster"]["state"] == "missing"  # the user set none
    assert "Ray cluster" not in checks()
    assert addresses == [address]
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.5:6379")
    checks()
    monkeypatch.setenv("GREENADAPT_CLUSTER", "local")
    assert checks(code=1)["Ray cluster"] == {
        "kind": "check", "check": "Ray cluster", "state": "problem", "found": "nobody answers", "advice": "start it",
    }  # fmt: skip
    assert addresses[1:] == ["10.0.0.5:6379", "local"]


def settings_in(all_rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("command", "option", "value", "source", "place")
    return [tuple(row[name] for name in names) for row in all_rows if row["kind"] == "setting"]


def test_what_is_set_is_shown_with_its_place(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks()["settings"]["found"] == "none set in a file or in the environment"
    Path("s.toml").write_text('workers = 2\nseed = 5\n[w2v]\nepochs = 7\n[finetune]\ntrain = ["a", "b"]\n')
    monkeypatch.setenv("GREENADAPT_CONFIG", "s.toml")
    monkeypatch.setenv("GREENADAPT_W2V_SEED", "6")
    monkeypatch.setenv("GREENADAPT_W2V_EPOCH", "8")
    assert settings_in(rows()) == [
        (None, "seed", "5", "file", "s.toml, seed"),
        (None, "workers", "2", "file", "s.toml, workers"),
        ("w2v", "epochs", "7", "file", "s.toml, [w2v] epochs"),
        ("w2v", "seed", "6", "environment", "GREENADAPT_W2V_SEED"),
        ("finetune", "train", ["a", "b"], "file", "s.toml, [finetune] train"),
    ]
    table = run_alone("doctor")
    assert "GREENADAPT_W2V_EPOCH is not the variable of an option: did you mean GREENADAPT_W2V_EPOCHS" in table.stderr
    assert "settings: 5 options set" in table.stdout
    table = [line.split() for line in table.stdout.splitlines()]
    assert ["w2v", "epochs", "7", "s.toml,", "[w2v]", "epochs"] in table
    assert ["finetune", "train", "a,", "b", "s.toml,", "[finetune]", "train"] in table


def test_a_wrong_setting_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(
        '[w2v]\nepochs = 0\nalpha = "x"\nmax-memory = 0\nengine = "slow"\n'
        "[pretrain]\nepochs = true\n[align]\nseed = 3\n"
    )
    all_rows = rows("--config", "s.toml", code=1)
    problems = {row["found"] for row in all_rows if row.get("state") == "problem"}
    assert {problem.split(" is ")[0] for problem in problems} == {
        *(f"in s.toml, [w2v] {key}" for key in ("epochs", "alpha", "max-memory", "engine")),
        "in s.toml, [pretrain] epochs",
    }
    assert "in s.toml, [w2v] epochs is '0', must be a whole number, at least 1" in problems
    assert "in s.toml, [pretrain] epochs is true, must be text or a number" in problems
    assert ("align", "seed", "3", "file", "s.toml, [align] seed") in settings_in(all_rows)
