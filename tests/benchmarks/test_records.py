"""Records of finished runs: what a kill leaves is removed, and anything else that is broken is named."""

from pathlib import Path

import pytest

from benchmarks.records import Records, resumable
from greenadapt.errors import InputError, UsageError


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text('{"key": "a"}\n{"key": "b", "sco\n')
    with pytest.raises(InputError, match=r"records\.jsonl, line 2"):
        Records(file)
    file.write_text('{"key": "a"}\n{"key": "b')  # killed while it wrote a line
    assert list(Records(file).by_key) == ["a"]
    assert file.read_text() == '{"key": "a"}\n'


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("wrong", "do it"), 2, "wrong: do it"),
        (InputError("bad"), 1, "bad"),
        (KeyboardInterrupt(), 130, "goes on"),
    ],
)
def test_what_ends_a_script_is_one_line(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        resumable(main)
    assert ended.value.code == code
    written = capsys.readouterr().err
    assert message in written
    assert written.count("\n") == 1
