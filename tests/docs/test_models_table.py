"""The table of what each command supports is what the code says."""

from pathlib import Path

from greenadapt.checkpoints.reader import MODEL_TYPES
from greenadapt.models.adapters.shape import ADAPTABLE_TYPES
from greenadapt.models.memory.attention import MEMORY_TYPES

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "your-own-corpus.md"


def test_every_model_type_has_its_row() -> None:
    lines = (line for line in GUIDE.read_text("utf-8").splitlines() if line.startswith("| `") and line.count("|") == 7)
    rows = {
        cells[0].strip("`"): cells[2:] for cells in ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    }
    del rows["model_type"]
    assert set(rows) == set(MODEL_TYPES)
    for kind, (adapted, trained, memory, adapters) in rows.items():
        assert adapted == trained == "yes"
        assert (memory == "yes", adapters == "yes") == (kind in MEMORY_TYPES, kind in ADAPTABLE_TYPES)
