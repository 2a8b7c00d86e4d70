"""The table of what each command supports is what the code says."""

from pathlib import Path

from greenadapt.checkpoints.reader import MODEL_TYPES
from greenadapt.models.adapters.shape import ADAPTABLE_TYPES
from greenadapt.models.memory.attention import MEMORY_TYPES

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "your-own-corpus.md"


def rows_of_tables(n_bars: int) -> dict[str, list[str]]:
    """Model type → its third and later cells, in tables with so many bars a line."""
    lines = (line for line in GUIDE.read_text("utf-8").splitlines() if line.startswith("| `"))
    cells = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.count("|") == n_bars)
    rows = {first.strip("`"): rest for first, _, *rest in cells}
    del rows["model_type"]
    return rows


def test_every_causal_model_type_has_its_row() -> None:
    assert set(rows_of_tables(4)) == {name for name, kind in MODEL_TYPES.items() if kind.is_causal}


def test_every_model_type_has_its_row() -> None:
    rows = rows_of_tables(7)
    assert set(rows) == {name for name, kind in MODEL_TYPES.items() if not kind.is_causal}
    for kind, (adapted, trained, memory, adapters) in rows.items():
        assert adapted == trained == "yes"
        assert (memory == "yes", adapters == "yes") == (kind in MEMORY_TYPES, kind in ADAPTABLE_TYPES)
