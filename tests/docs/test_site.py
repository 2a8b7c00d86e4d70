"""The documentation site is built without a warning, has the generated reference, and needs nothing from elsewhere."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.pages import GROUP, PAGES, ROOT, module_of, navigation

PARTS = ["README.md", "corpora", "experiments", "benchmarks", "docs", "greenadapt", "zensical.toml"]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return module_of("docs/site/build.py")


@pytest.mark.parametrize(
    ("source", "link", "in_site"),
    [
        ("benchmarks/RESULTS.md", "results/rows.md", "results/rows.md"),
        ("benchmarks/RESULTS.md", "../docs/tutorial.md#6-train", "tutorial.md#6-train"),
        ("benchmarks/results/rows.md", "../RESULTS.md#rows-from-form", "../measurements.md#rows-from-form"),
        ("benchmarks/results/rows.md", "../../docs/images/growth-words.svg", "../images/growth-words.svg"),
        ("docs/guides/python.md", "../../benchmarks/results/rows.md", "../results/rows.md"),
        ("docs/guides/python.md", "../faq.md", "../faq.md"),
        ("docs/guides/python.md", "https://example.org/faq.md", "https://example.org/faq.md"),
        ("docs/guides/python.md", "#fine-tune", "#fine-tune"),
        ("corpora/README.md", "../docs/faq.md", "../docs/faq.md"),
    ],
)
def test_links_lead_to_the_same_files_in_the_site(build: ModuleType, source: str, link: str, in_site: str) -> None:
    assert build.with_links(f"See [this]({link}).", ROOT / source) == f"See [this]({in_site})."


def test_long_commands_are_continued_on_further_lines_and_stay_the_same(build: ModuleType) -> None:
    """What is written as one line, so that it can be run, is cut at the edge of a page."""
    n_continued = 0
    for page in PAGES:
        text = build.with_lines(page.text)
        assert re.sub(r" \\\n {4}(?=-)", " ", text).split() == page.text.replace(" \\\n    -", " -").split()
        added = set(text.split("\n")) - set(page.text.split("\n"))
        assert all(len(line) <= build.WIDTH for line in added), page.name
        n_continued += sum(line.startswith("greenadapt ") for line in added)
    assert n_continued > 10
    command = 'greenadapt qa --model squad-bert --index a.index --question "When was it isolated - if it was?" -o a -q'
    in_lines = build.with_lines(f"```\n{command}\n```").split("\n", 1)[1].rsplit("\n", 1)[0]
    assert in_lines.count("\n") == 1
    assert shlex.split(in_lines.replace("\\\n", "")) == shlex.split(command)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the extra docs")
def test_the_site_is_complete_and_needs_no_network(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    built = subprocess.run(
        [sys.executable, "docs/site/build.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "build" / "site"
    pages = {page: (site / page).with_suffix(".html").read_text("utf-8") for page in navigation()}
    for page, html in pages.items():
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?([^\"\s>]+)", html)
        assert [url for url in loaded if "://" in url and not url.startswith("https://www.w3.org")] == [], page
        assert [url for url in loaded if not (site / page).parent.joinpath(url.split("?")[0]).exists()] == [], page
        assert "<!-- include" not in html
    commands = pages["reference/commands.md"]
    assert all(f'id="greenadapt-{name}' in commands for name in GROUP.commands)
    assert "--margin" in commands
    assert "DualTokenizer" in pages["reference/python.md"]
    assert "StackOverflow" in pages["measurements.md"]
    tables = {path.stem for path in (ROOT / "benchmarks/results").glob("*.md")}
    assert tables == {path.stem for path in (site / "results").glob("*.html")}
