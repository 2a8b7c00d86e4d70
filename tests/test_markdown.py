from pathlib import Path

import pytest

from greenadapt.cost import estimate
from greenadapt.report.markdown import section, short, spent
from greenadapt.report.score_tables import Table


def test_paths_are_told_by_their_last_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "private").mkdir()
    for path in (tmp_path / "private", "~/private", "s3://bucket/private"):
        assert short(str(path)) == "private"
    for name in ("org/model", "minilm", "/not/here"):
        assert short(name) == name


def test_a_section_is_a_heading_and_a_table_of_text_and_numbers() -> None:
    table = Table("all scores", ["set", "from", "n"], [["a|b", "two\nlines", "3"]])
    head, line = "\n## All scores\n\n| set | from | n |\n", "| a\\|b | two lines | 3 |\n"
    assert section(table) == f"{head}| --- | ---: | ---: |\n{line}"
    assert section(table, n_left=2) == f"{head}| --- | --- | ---: |\n{line}"


def test_what_was_spent() -> None:
    cost = estimate(seconds=1234.5, cpu_seconds=2000, peak_memory_bytes=1 << 30)
    assert spent(cost.as_dict()) == f"1,234 seconds, {1000 * cost.energy_kwh:.3g} Wh ({cost.energy_source})"
