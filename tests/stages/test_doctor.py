"""``doctor``: what works on this machine, and what to do about what does not."""

import json
import re
import shutil
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.stages import doctor as module
from tests.conftest import Run
from tests.support.json_schema import check_json


def checks(code: int = 0) -> dict[str, dict[str, Any]]:
    """Whatever the exit code is, all checks are printed."""
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    check_json(["doctor", "--json"], result.stdout)
    return {row["check"]: row for row in map(json.loads, result.stdout.splitlines())}


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


def test_a_full_disk_is_a_problem(run_alone: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    result = checks(code=1)
    assert (result["workspace"]["state"], "clean" in result["workspace"]["advice"]) == ("problem", True)
