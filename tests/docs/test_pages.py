"""What README.md and the pages of docs/ say is true: commands, options, paths and links exist, and no page is lost."""

import argparse
import re
import shlex
import tomllib

import pytest

from experiments.command import parse
from greenadapt.architectures import ARCHITECTURES
from tests.support.pages import GROUP, PAGES, ROOT, Page, command_of, navigation, options_of

README = PAGES[0]
SCRIPT = {f"--{name.replace('_', '-')}" for name in vars(parse(argparse.ArgumentParser(), []))}
"""Options of the scripts in ``experiments/``."""
RESULTS = [Page(ROOT / "benchmarks/RESULTS.md"), *map(Page, sorted((ROOT / "benchmarks/results").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_and_their_options_exist(page: Page) -> None:
    for line in [*page.commands, *page.code]:
        if line.startswith("greenadapt ") and "COMMAND" not in line:
            words = shlex.split(line)[1:]
            named = {word for word in words if word.startswith("--")}
            assert named <= options_of(command_of(words)), line
        if line.startswith("python experiments/"):
            _, script, *words = shlex.split(line)
            assert (ROOT / script).is_file()
            assert {word for word in words if word.startswith("--")} <= SCRIPT, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_that_the_text_names_exists(page: Page) -> None:
    named = {word for code in page.code for word in code.split() if re.fullmatch(r"--[a-z][\w-]*", word)}
    assert named <= options_of(GROUP) | SCRIPT


def test_every_command_is_in_the_table() -> None:
    table = Page(ROOT / "docs/reference/commands.md").code
    assert {*GROUP.commands} <= {line.split()[1] for line in table if line.startswith("greenadapt ")}


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Page) -> None:
    for link in page.links:
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.is_file(), link
        assert not anchor or anchor in Page(path).anchors, link


@pytest.mark.parametrize("page", [*PAGES, Page(ROOT / "CONTRIBUTING.md")], ids=lambda page: page.name)
def test_paths_in_the_text_exist(page: Page) -> None:
    named = re.findall(r"`((?:greenadapt|tests|benchmarks|docs|corpora|examples|experiments)/[\w./]*)`", page.prose)
    assert page.name != "CONTRIBUTING.md" or len({*named}) > 20
    included = re.findall(r"<!-- include (\S+/\S+) -->", page.text)
    assert [path for path in [*named, *included] if not (ROOT / path).exists()] == []


def test_the_navigation_has_every_page_once() -> None:
    pages = [*navigation()]
    assert len(pages) == len({*pages})
    assert {*pages} == {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


def test_the_readme_is_short_and_opens_with_the_demo() -> None:
    assert len(README.text.split()) <= 700
    assert [line.split()[:2] for line in README.blocks[0].text.splitlines()] == [["make", "demo"], ["make", "test"]]


def test_the_first_page_leads_to_every_page() -> None:
    start, *pages = navigation()
    assert {*pages} <= {*Page(ROOT / "docs" / start).links}


def test_the_guide_names_every_type_of_model_and_what_it_lacks() -> None:
    guide = Page(ROOT / "docs/guides/your-own-corpus.md")
    assert {*ARCHITECTURES} <= {*guide.code}
    encoders = ARCHITECTURES.values()
    lacking = [
        architecture.model_type
        for architecture in encoders
        if isinstance(architecture.memory, str) or isinstance(architecture.adapters, str)
    ]
    with_adapters = [
        architecture.model_type for architecture in encoders if "QuestionAnswering" not in architecture.heads
    ]
    prose = " ".join(guide.prose.split())
    assert f"{_listed(lacking)} has neither `--memory` nor adapters" in prose
    assert f"{_listed(with_adapters)} answer questions only with adapters" in prose


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def test_results_link_every_table() -> None:
    linked = {link.partition("#")[0] for link in RESULTS[0].links}
    assert {f"results/{page.path.name}" for page in RESULTS[1:]} <= linked


def test_what_is_installed_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = ",".join(names for page in PAGES for names in re.findall(r"pip install [^\n`]*\[([\w,]+)\]", page.text))
    assert {"train", "vectors"} <= {*named.split(",")} <= {*extras}
