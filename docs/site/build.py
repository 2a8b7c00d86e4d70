"""Builds the documentation site: ``python docs/site/build.py [--pages-only]``, in the folder of the project.

Pages are copied to ``build/docs``; a line ``<!-- include NAME -->`` becomes a file of the project, or what is generated
from the code, and long commands are broken. zensical then writes ``build/site``, and fails for a broken link.
"""

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
WIDTH = 88
"""The most characters of a command's line: what a window of 1,280 pixels shows beside both menus."""
INCLUDE = re.compile(r"^<!-- include (\S+) -->$", re.MULTILINE)
GENERATED: dict[str, Callable[[], str]] = {"commands": commands.markdown, "schemas": schemas.markdown}


def included(name: str) -> str:
    """What takes the place of a line ``<!-- include NAME -->``: a file without its title, or generated text."""
    if name in GENERATED:
        return GENERATED[name]()
    text = (ROOT / name).read_text("utf-8")
    return re.sub(r"\A# .*\n+", "", text).strip()


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
    for page in TO.rglob("*.md"):
        text = page.read_text("utf-8")
        page.write_text(with_lines(INCLUDE.sub(lambda found: included(found[1]), text)), "utf-8")


def main() -> None:
    """Write the pages and, unless only they are wanted, the site."""
    write_pages()
    if "--pages-only" not in sys.argv:
        zensical = Path(sys.executable).with_name("zensical")
        sys.exit(subprocess.run([zensical, "build", "--strict", "--clean"], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
