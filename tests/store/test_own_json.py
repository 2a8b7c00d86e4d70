"""JSON that greenadapt wrote: what is wrong in it is one line, and no other code reads any."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from greenadapt.checkpoints.layout import CompiledSettings, read_described, read_seeds
from greenadapt.checkpoints.provenance import read_facts
from greenadapt.errors import GreenadaptError, InputError, MissingError
from greenadapt.store.files import read_own, read_own_lines, read_own_object
from greenadapt.store.results import read_manifest


@dataclass(frozen=True)
class Inner:
    count: int


@dataclass(frozen=True)
class Kind:
    name: str
    parts: dict[str, Inner]
    words: tuple[str, ...] = ()


GOOD = {"name": "a", "parts": {"x": {"count": 1}}, "words": ["b"], "more": [{"y": 1}]}


def test_values_have_the_types_of_a_dataclass_or_are_named(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(GOOD))
    assert read_own(file, Kind, "thing") == Kind("a", {"x": Inner(1)}, ("b",))
    assert read_own_object(file, Kind, "thing") == GOOD
    for key, value, message in (
        ("name", 5, "own.json: name is 5, must be a valid string"),
        ("parts", {"x": {"count": "1"}}, 'own.json: parts.x.count is "1", must be a valid integer'),
        ("parts", {"x": {}}, "own.json has no parts.x.count"),
        ("words", "b" * 1000, "words is"),
    ):
        file.write_text(json.dumps({**GOOD, key: value}))
        with pytest.raises(InputError) as error:
            read_own(file, Kind, "thing", "make it again")
        assert message in error.value.message
        assert len(error.value.message) < 300
        assert error.value.hint == "make it again"
    for content, message in (
        (b"", "own.json is empty"),
        (b"[]", "is not a JSON object"),
        (b"{", "is not JSON"),
        (b'{"name": "\xff"}', "is not JSON"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_own(file, Kind, "thing")
    with pytest.raises(MissingError, match=r"is not a thing: it has no none\.json"):
        read_own(tmp_path / "none.json", Kind, "thing")


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"key": "a"}\n{"key": 5}\n')
    assert list(read_own_lines(file)) == [{"key": "a"}, {"key": 5}]
    file.write_text('{"key": "a"}\n5\n')
    with pytest.raises(InputError, match=r"rows\.jsonl, line 2 is not a JSON object"):
        list(read_own_lines(file))


MANIFEST = {"format": 2, "stage": "w2v", "key": "k", "config": {}, "inputs": {}}
FACTS = {"corpus": "a", "model": {"name": "b", "source": "c"}}
COMPILED = {"quantize": "none", "head": "TokenClassification", "inputs": ["attention_mask"]}


@pytest.mark.parametrize(
    ("name", "good", "key", "value"),
    [
        ("compiled.json", COMPILED, "inputs", ["evil"]),
        ("greenadapt.json", FACTS, "model", {"name": 5, "source": "c"}),
        ("task.json", {"task": "ner"}, "pool", "none"),
        ("multitask.json", {"tasks": []}, "tasks", [5]),
        ("scores.json", {"seeds": [{"seed": 1}]}, "seeds", [1]),
        ("manifest.json", MANIFEST, "inputs", {"text": 5}),
    ],
)
def test_a_wrong_type_in_a_file_of_a_result_is_one_line(
    tmp_path: Path, name: str, good: dict[str, Any], key: str, value: Any
) -> None:
    file = tmp_path / name
    readers: dict[str, Any] = {
        "compiled.json": CompiledSettings.read,
        "greenadapt.json": read_facts,
        "manifest.json": read_manifest,
        "scores.json": read_seeds,
    }
    read = readers.get(name, lambda folder: read_described(folder / name))
    file.write_text(json.dumps(good))
    assert read(tmp_path) is not None
    file.write_text(json.dumps({**good, key: value}))
    with pytest.raises(GreenadaptError) as error:
        read(tmp_path)
    assert name in error.value.message or "format version" in error.value.message
    assert error.value.hint
