"""The workflows of CI and of a release call targets of the Makefile, and may do no more than they need."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())["jobs"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_they_make_is_in_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = [step for job in jobs(path).values() for step in job["steps"]]
    called = {name for step in steps for name in re.findall(r"\bmake ([a-z]+)", step.get("run", ""))}
    assert called
    assert called <= targets


def test_all_versions_of_python_are_tested() -> None:
    [ci] = [path for path in WORKFLOWS if path.stem == "ci"]
    tested = {entry["python"] for entry in jobs(ci)["test"]["strategy"]["matrix"]["include"]}
    declared = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert tested == set(declared)


def test_only_the_last_step_of_a_release_may_publish() -> None:
    allowed = {path.stem: yaml.safe_load(path.read_text())["permissions"] for path in WORKFLOWS}
    assert allowed == {"ci": {"contents": "read"}, "release": {}}
    of_jobs = {name: job.get("permissions") for path in WORKFLOWS for name, job in jobs(path).items()}
    assert {name: allowed for name, allowed in of_jobs.items() if allowed} == {
        "build": {"contents": "read"},
        "publish": {"id-token": "write"},
    }
    assert not any("run" in step for step in jobs(ROOT / ".github/workflows/release.yml")["publish"]["steps"])
