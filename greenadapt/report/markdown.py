"""What the READMEs of all kinds of models have in common."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from greenadapt.report.score_tables import Table

Json = dict[str, Any]
SENTENCES = """
`sentence-transformers` reads this folder by the expanded tokenizer alone, and its embeddings can find less than those
of the base model. Average the two embeddings of a text, by `base_tokenizer/` and by the expanded tokenizer, as the
paper averages what both give.
"""
"""On models with added words that ``sentence-transformers`` loads."""
# What begins or ends something in Markdown, but for an underscore in a word, where it does neither.
_MARKS = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")


def front_matter(base: str | None, *, pipeline: str | None = None, tags: Sequence[str] = ()) -> str:
    """The YAML at the top of a card, with ``base``, the hub's id of the pretrained model, where that is known."""
    from huggingface_hub import ModelCardData

    tags = ["greenadapt", "domain-adaptation", *tags]
    data = ModelCardData(base_model=base, library_name="transformers", pipeline_tag=pipeline, tags=tags)
    return f"---\n{data.to_yaml()}\n---\n"


def escaped(text: str) -> str:
    """``text`` in one line, of which nothing is read as Markdown or HTML."""
    return _MARKS.sub(r"\\\g<0>", escape(" ".join(text.split()), quote=False))


def code(text: str) -> str:
    """``text`` in one line, as code within a line."""
    text = " ".join(text.split())
    fence = "`" * (1 + _longest_run(text))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def fenced(text: str) -> str:
    """A block of shell commands."""
    fence = "`" * max(3, 1 + _longest_run(text))
    return f"{fence}sh\n{text}\n{fence}"


def section(table: Table, n_left: int = 1) -> str:
    """A heading and a table, of whose columns the first ``n_left`` hold text, the others numbers."""
    lines = [table.columns, ["---"] * n_left + ["---:"] * (len(table.columns) - n_left), *table.rows]
    drawn = "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in lines)
    return f"\n## {escaped(table.title[:1].upper() + table.title[1:])}\n\n{drawn}\n"


def spent(cost: Json) -> str:
    """What a ``Cost``, as JSON, took: its seconds, its energy in watt-hours, and where that is from."""
    return f"{cost['seconds']:,.0f} seconds, {1000 * cost['energy_kwh']:.3g} Wh ({cost['energy_source']})"


def _longest_run(text: str) -> int:
    """The most backticks in a row."""
    return max(map(len, re.findall("`+", text)), default=0)
