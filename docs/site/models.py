"""The table of what each command supports, by architecture: ``python docs/site/models.py`` writes it into its guide."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from greenadapt.architectures.architecture import Architecture  # noqa: E402
from greenadapt.architectures.registry import ARCHITECTURES  # noqa: E402

GUIDE = ROOT / "docs" / "guides" / "your-own-corpus.md"
_TITLES = (
    *("`model_type`", "for example", "`adapt`, `finetune`, `predict`, `qa`", "`pretrain`", "`--memory`"),
    "`--tasks` with adapters",
)
_TABLE = re.compile(r"^\| `model_type` .*\n(\|.*\n)*", re.MULTILINE)


def markdown() -> str:
    """A row for each architecture."""
    rows = [_row(_TITLES), "|" + "---|" * len(_TITLES), *(_row(_cells(one)) for one in ARCHITECTURES.values())]
    return "".join(f"{row}\n" for row in rows)


def with_table(page: str) -> str:
    """``page`` with the table as the code has it."""
    table = markdown()
    changed, n_tables = _TABLE.subn(lambda _: table, page)
    if n_tables != 1:
        raise ValueError(f"{GUIDE} has {n_tables} tables of architectures, must have one")
    return changed


def _row(cells: tuple[str, ...]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _cells(one: Architecture) -> tuple[str, ...]:
    optional = ("" if isinstance(part, str) else "yes" for part in (one.memory, one.adapters))
    adapted = "yes" if "QuestionAnswering" in one.heads else "yes; `qa` with adapters only"
    return f"`{one.model_type}`", one.examples, adapted, "yes", *optional


if __name__ == "__main__":
    GUIDE.write_text(with_table(GUIDE.read_text("utf-8")), "utf-8")
