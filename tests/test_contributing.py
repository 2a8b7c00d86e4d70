"""CONTRIBUTING.md and the targets of make are true."""

import re
import subprocess

from tests.support.pages import PAGES, ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_the_make_targets_exist_and_make_help_lists_them() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make (\w+) +\S", listed, re.MULTILINE) == phony.split()
    named = re.findall(r"^make (\w+)", "\n".join(PAGES[0].commands) + CONTRIBUTING, re.MULTILINE)
    assert {"demo", "test", "check"} <= {*named} <= {*phony.split()}


def test_the_tree_for_contributors_is_the_package_s() -> None:
    tree = CONTRIBUTING.split("```\ngreenadapt/\n")[1].split("```")[0].split("\ncorpora/")[0]
    package = ROOT / "greenadapt"
    folders = [path for path in package.rglob("*") if (path / "__init__.py").is_file()]
    assert sorted(re.findall(r"(\w+)/", tree)) == sorted(path.name for path in folders)
    assert [path.stem for path in package.glob("*.py") if not re.search(rf"\b{path.stem}\b", tree)] == ["__init__"]
