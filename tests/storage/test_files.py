"""The one reader of JSON objects: what it refuses, and in which words."""

from pathlib import Path

import pytest

from greenadapt.errors import InputError, MissingError
from greenadapt.storage.files import described_in, read_object


def test_an_object_is_read(tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text('{"task": "ner"}', "utf-8")
    assert read_object(file, "fine-tuned model") == {"task": "ner"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"task": "n', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff{}", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
    ],
)
def test_anything_else_is_refused_in_one_line_with_the_name(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "task.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=rf"task\.json {reason}.*: do it again") as caught:
        read_object(file, "fine-tuned model", "do it again")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("no folder", "utf-8")
    with pytest.raises(MissingError, match=r"fine-tuned model.*task\.json"):
        read_object(tmp_path / folder / "task.json", "fine-tuned model")


def test_what_cannot_be_used_names_its_file() -> None:
    said: dict[str, dict[str, str]] = {"model": {}}
    for key in ("corpus", "model"):
        message = rf"a\.json is broken \(it has no '{'name' if key in said else key}'\): x"
        with pytest.raises(InputError, match=message), described_in(Path("a.json"), "x"):
            said[key]["name"]
