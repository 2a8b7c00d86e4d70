"""Runs the tutorial as a reader would, and writes what its commands print into the page.

    python docs/site/outputs.py [DIR]

It takes a quarter of an hour. DIR is an empty folder, by default a temporary one; the installation is left out.
Figures in the sentences of the page have to be changed by hand.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INSTALLATION = "python3.11 -m venv"
LEFT_OUT = "…"


def refreshed(shown: str, printed: str) -> str:
    """``shown``, lines of an earlier output, with the lines of ``printed`` that begin alike, in order.

    ``…`` stands for lines, or at the end of a line for parts between commas, that are left out. Raises ``ValueError``
    if no line of ``printed`` begins like one of ``shown``.
    """
    lines = iter(printed.splitlines())
    return "".join(f"{_refreshed(line, lines)}\n" for line in shown.splitlines())


def _refreshed(shown: str, printed: Iterator[str]) -> str:
    if shown.strip() == LEFT_OUT:
        return shown
    for line in printed:
        if _begin(line) == _begin(shown):
            if not shown.endswith(LEFT_OUT):
                return line.rstrip()
            return ", ".join([*line.split(", ")[: shown.count(", ")], LEFT_OUT])
    raise ValueError(f"no line of the output is like {shown!r}")


def _begin(line: str) -> str:
    """The first word of a line, after a colon two more, and the blanks before; numbers are alike, and so are rules."""
    begin = re.match(r"\s*\S*(?<=:) \S+ \S+|\s*\S*", line.rstrip())
    return re.sub(r"\d[\d.,]*", "0", re.sub("─+", "─", begin[0] if begin else ""))


def run(kind: str, text: str, folder: Path) -> str:
    """What a block of commands, or of Python, prints in ``folder``; a block of Python that has a name is saved."""
    name = re.match(r"# (\S+\.py)\n", text)
    if name:
        (folder / name[1]).write_text(text, "utf-8")
        return ""
    command = [sys.executable, "-c", text] if kind == "python" else ["bash", "-e", "-c", text]
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {name: value for name, value in os.environ.items() if not name.startswith("GREENADAPT_")}
    variables = {**own, "PATH": search, "GREENADAPT_HOME": str(folder / "workspace"), "COLUMNS": "140"}
    process = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{text.strip()}: exit code {process.returncode}\n{process.stderr}")
    files = [(folder / file).read_text("utf-8") for file in re.findall(r"> (\S+)", text if not kind else "")]
    return "\n".join([process.stderr, process.stdout, *files])


def main() -> None:
    """Write the page anew."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tutorial-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty: what lies there would not be made again")
    printed = ""

    def block(match: re.Match[str]) -> str:
        nonlocal printed
        kind, text = match.groups()
        if kind == "text":
            return f"```text\n{refreshed(text, printed)}```"
        if kind in ("", "python") and not text.startswith(INSTALLATION):
            sys.stdout.write(f"{text.strip()}\n")
            printed = run(kind, text, folder)
            sys.stdout.write(f"{printed}\n")
            sys.stdout.flush()
        return match[0]

    TUTORIAL.write_text(BLOCK.sub(block, TUTORIAL.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
