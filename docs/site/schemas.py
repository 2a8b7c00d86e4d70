"""The reference of JSON output, from the JSON schema in the package."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FILE = Path(__file__).resolve().parents[2] / "greenadapt" / "schemas" / "output.json"


def markdown() -> str:
    """The keys of every object that is printed, with their types."""
    objects: dict[str, Any] = json.loads(_FILE.read_text("utf-8"))["$defs"]
    return "\n\n".join(_table(name, schema) for name, schema in objects.items())


def _table(name: str, schema: dict[str, Any]) -> str:
    title = f"### {name}" if name[0].isupper() else f"### greenadapt {name.replace('corpus-', 'corpus ')}"
    variants = schema.get("oneOf", schema.get("anyOf", [schema]))
    return "\n\n".join([title, *map(_variant, variants)])


def _variant(schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return _type(schema)
    return "\n".join(["| key | type | |", "|---|---|---|", *_rows(schema)])


def _rows(schema: dict[str, Any]) -> Iterator[str]:
    for key, value in schema["properties"].items():
        yield f"| `{key}` | {_type(value)} | {'' if key in schema.get('required', ()) else 'not always'} |"


def _type(schema: dict[str, Any]) -> str:
    """A type in words; an object within an object has its keys in brackets."""
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " or ".join(_type(each) for each in schema[several])
    if "allOf" in schema:
        return ", ".join(_type(each) for each in schema["allOf"])
    kinds = schema.get("type", "anything")
    return " or ".join(_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array" and "items" in schema:
        return f"list of {_type(schema['items'])}"
    if kind == "object" and "properties" in schema:
        return f"object ({', '.join(f'`{key}`' for key in schema['properties'])})"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return {"array": "list", "integer": "whole number"}.get(kind, kind)
