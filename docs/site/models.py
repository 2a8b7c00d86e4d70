"""The tables of what each command supports: ``python docs/site/models.py`` writes them into the guide."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from greenadapt.architectures import ARCHITECTURES  # noqa: E402
from greenadapt.architectures.base import Architecture  # noqa: E402

GUIDE = ROOT / "docs" / "guides" / "your-own-corpus.md"
_GENERATIVE = ("`model_type`", "for example")
_TITLES = (
    *("`model_type`", "for example", "`adapt`, `finetune`, `predict`, `qa`", "`pretrain`", "`--memory`"),
    "`--tasks` with adapters",
)
_TABLE = re.compile(r"^\| `model_type` .*\n(\|.*\n)*", re.MULTILINE)


def markdown() -> list[str]:
    """A table of encoders, and one of generative language models."""
    encoders = [_cells(one) for one in ARCHITECTURES.values() if not one.is_generative]
    generative = [_cells(one)[: len(_GENERATIVE)] for one in ARCHITECTURES.values() if one.is_generative]
    return [_table(_TITLES, encoders), _table(_GENERATIVE, generative)]


def with_tables(page: str) -> str:
    """``page`` with the tables as the code has them."""
    tables = markdown()
    if (found := len(_TABLE.findall(page))) != len(tables):
        raise ValueError(f"{GUIDE} has {found} tables of architectures, must have {len(tables)}")
    left = iter(tables)
    return _TABLE.sub(lambda _: next(left), page)


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [_row(titles), "|" + "---|" * len(titles), *map(_row, rows)]
    return "".join(f"{line}\n" for line in lines)


def _row(cells: tuple[str, ...]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _cells(one: Architecture) -> tuple[str, ...]:
    optional = ("" if isinstance(part, str) else "yes" for part in (one.memory, one.adapters))
    adapted = "yes" if "QuestionAnswering" in one.heads else "yes; `qa` with adapters only"
    return f"`{one.model_type}`", one.examples, adapted, "yes", *optional


if __name__ == "__main__":
    GUIDE.write_text(with_tables(GUIDE.read_text("utf-8")), "utf-8")
