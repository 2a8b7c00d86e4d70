"""Builds the documentation site: ``python docs/site/build.py [--pages-only]``, in the folder of the project.

Pages are copied to ``build/docs``, the tables of ``benchmarks/results`` to ``build/docs/results``, and links between
them follow. A line ``<!-- include NAME -->`` becomes a file of the project, or what is generated from the code, and
long commands are broken. zensical then writes ``build/site``, and fails for a broken link.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import commands  # noqa: E402
import schemas  # noqa: E402

PAGES, TO = ROOT / "docs", ROOT / "build" / "docs"
RESULTS, TABLES = ROOT / "benchmarks" / "RESULTS.md", ROOT / "benchmarks" / "results"
WIDTH = 88
"""The most characters of a command's line: what a window of 1,280 pixels shows beside both menus."""
INCLUDE = re.compile(r"^<!-- include (\S+) -->$", re.MULTILINE)
LINKED = re.compile(r"(?<=\]\()[^)\s#:]+(?=[)#])")
"""The file that a link or a picture names."""
GENERATED: dict[str, Callable[[], str]] = {"commands": commands.markdown, "schemas": schemas.markdown}


def included(name: str) -> str:
    """What takes the place of a line ``<!-- include NAME -->``: a file without its title, or generated text."""
    if name in GENERATED:
        return GENERATED[name]()
    text = with_links((ROOT / name).read_text("utf-8"), ROOT / name)
    return re.sub(r"\A# .*\n+", "", text).strip()


def place(file: Path) -> Path | None:
    """Where a file of the project is in ``build/docs``: the page that includes it, or its copy; None if it is not."""
    if file == RESULTS:
        return TO / "measurements.md"
    for folder, copy in ((PAGES, TO), (TABLES, TO / "results")):
        if file.is_relative_to(folder):
            return copy / file.relative_to(folder)
    return None


def with_links(text: str, source: Path) -> str:
    """``text`` of the file ``source``, with links that lead from its place in ``build/docs`` to those of others."""
    page = place(source)

    def linked(found: re.Match[str]) -> str:
        target = place((source.parent / found[0]).resolve())
        return os.path.relpath(target, page.parent) if page and target else found[0]

    return LINKED.sub(linked, text)


def with_lines(text: str) -> str:
    """``text`` in which commands that are wider than a page are continued on further lines, as in a shell.

    Commands are in blocks without a language, and in those of a shell.
    """
    language: str | None = None  # of the block, if the line is in one
    lines = []
    for line in text.split("\n"):
        fence = re.match(r"\s*```\s*(\S*)", line)
        if fence:
            language = fence[1] if language is None else None
        lines.append(_continued(line) if language in ("", "sh") and line.startswith("greenadapt ") else line)
    return "\n".join(lines)


def _continued(command: str) -> str:
    """A command with line breaks before options, where it is too wide."""
    if len(command) <= WIDTH or "#" in command:
        return command
    lines = [""]
    for part in re.split(r" (?=--?[a-z])", command):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > WIDTH - 2:  # of the backslash
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n".join(lines)


def write_pages() -> None:
    """Write every page of the site to ``build/docs``."""
    shutil.rmtree(TO, ignore_errors=True)
    shutil.copytree(PAGES, TO, ignore=shutil.ignore_patterns("site", "__pycache__"))
    shutil.copytree(TABLES, TO / "results", ignore=shutil.ignore_patterns("*.jsonl"))
    for source in [*PAGES.rglob("*.md"), *TABLES.glob("*.md")]:
        text = INCLUDE.sub(lambda found: included(found[1]), with_links(source.read_text("utf-8"), source))
        page = place(source)
        assert page is not None
        page.write_text(with_lines(text), "utf-8")


def main() -> None:
    """Write the pages and, unless only they are wanted, the site."""
    write_pages()
    if "--pages-only" not in sys.argv:
        zensical = Path(sys.executable).with_name("zensical")
        sys.exit(subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
