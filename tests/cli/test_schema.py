"""The published schema of ``--json`` is valid, covers every command, and says what the documentation says.

That commands print what it says is checked wherever a test calls one (``tests/conftest.py``).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from greenadapt.cli.settings import commands_of
from tests.support.json_schema import SCHEMA
from tests.support.pages import GROUP

DEFINITIONS: dict[str, Any] = SCHEMA["$defs"]
COMMANDS = [name for name in DEFINITIONS if name[0].islower()]
TABLE = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text("utf-8")
ROWS = [line.split("|")[1:3] for line in TABLE.splitlines() if line.startswith("| `")]
OTHER_ROWS = {"adapt": "corpus prepare"}
"""Rows that a row refers to."""


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    """The keys of a command's lines."""
    if "$ref" in schema:
        schema = DEFINITIONS[schema["$ref"].rsplit("/", 1)[1]]
    yield from schema.get("properties", ())
    for alternative in schema.get("anyOf", ()):
        yield from _keys(alternative)


def _rows(command: str) -> list[str]:
    return [keys for names, keys in ROWS if re.search(rf"`{command}( [^`]*)?`", names)]


def test_it_is_a_schema_and_has_every_command_that_prints_json() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    commands = commands_of(GROUP).items()
    with_json = {key for key, command in commands if any("--json" in parameter.opts for parameter in command.params)}
    assert with_json == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_table_in_the_documentation_names_its_keys(command: str) -> None:
    rows = [*_rows(command.replace("-", " ")), *_rows(OTHER_ROWS.get(command, "-"))]
    assert rows
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    keys = set(_keys(DEFINITIONS[command]))
    assert keys <= named
    # Before its remarks, and outside brackets, a row has nothing but keys.
    plain = {word for row in rows for word in re.findall(r"`(\w+)`", re.sub(r"\([^()]*\)", "", row).split(";")[0])}
    assert plain - keys <= {"adapt"}
