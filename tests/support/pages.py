"""README.md and the pages of ``docs/``: their blocks, code and links."""

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from greenadapt.cli import app

ROOT = Path(__file__).parents[2]
SITE = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
GROUP: Any = typer.main.get_command(app)


def module_of(script: str) -> ModuleType:
    """A script of the project, as a module."""
    spec = importlib.util.spec_from_file_location(Path(script).stem, ROOT / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    kind: str
    text: str


@dataclass(frozen=True)
class Page:
    """A page of Markdown."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @property
    def blocks(self) -> list[Block]:
        return [Block(*match) for match in re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)]

    @property
    def prose(self) -> str:
        """The text without its blocks."""
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.DOTALL | re.MULTILINE)

    @property
    def code(self) -> list[str]:
        """The code in sentences and tables."""
        return re.findall(r"`([^`\n]+)`", self.prose)

    @property
    def commands(self) -> list[str]:
        """The lines of blocks of commands: those that are run, without a language, and those that are only shown."""
        return [line for block in self.blocks if block.kind in ("", "sh") for line in block.text.splitlines()]

    @property
    def links(self) -> list[str]:
        """The targets of links and pictures."""
        return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]+`", "", self.prose))

    @property
    def anchors(self) -> set[str]:
        """The anchors of its headings."""
        titles = re.findall(r"^#+ (.*)$", self.prose, re.MULTILINE)
        plain = (re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles)
        return {re.sub(r"[\s-]+", "-", title) for title in plain}


def navigation(entries: list[dict[str, Any]] = SITE["nav"]) -> Iterator[str]:
    """The pages that the site's navigation names, in order."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from navigation(target)


PAGES = [Page(ROOT / "README.md"), *(Page(ROOT / "docs" / name) for name in navigation())]


def command_of(words: list[str]) -> Any:
    """The command that ``words`` (after ``greenadapt``) name; KeyError if there is none."""
    command = GROUP
    for word in words:
        if word.startswith("-") or not hasattr(command, "commands"):
            break
        command = command.commands[word]
    return command


def options_of(command: Any) -> set[str]:
    """All options of a command, or of those of a group."""
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    below = getattr(command, "commands", {}).values()
    return names.union({"--help"}, *map(options_of, below))
