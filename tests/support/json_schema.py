"""Checks the JSON lines of commands against the published schema."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

import greenadapt

SCHEMA: dict[str, Any] = json.loads((Path(greenadapt.__file__).parent / "schemas" / "output.json").read_text("utf-8"))
GROUPS = ("corpus",)
"""Commands that have commands."""
ALWAYS = ("predict", "qa")
"""Commands that print JSON unless stdout is a terminal."""


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of a definition; raises ``KeyError`` for a command without a schema."""
    SCHEMA["$defs"][name]
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})


def check_json(arguments: Sequence[str], stdout: str) -> None:
    """Raise ``ValidationError`` if the command printed a line that its schema does not allow."""
    if not ("--json" in arguments or arguments[0] in ALWAYS):
        return
    name = "-".join(arguments[: 2 if arguments[0] in GROUPS else 1])
    for line in stdout.splitlines():
        if "--json" in arguments or line.startswith("{"):
            validator(name).validate(json.loads(line))
