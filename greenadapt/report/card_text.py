"""What all model cards share: Markdown, front matter, and a configuration as command-line options."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from greenadapt.config import MemoryConfig
from greenadapt.report.tables import VIEWS, Table
from greenadapt.storage.files import Json, plain
from greenadapt.storage.names import short

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


_MIX = {
    "sample": "each example in a tokenization drawn anew every epoch",
    "fixed": "each example in a tokenization drawn once",
    "batch": "each batch in a tokenization drawn anew",
    "both": "each example in both tokenizations",
    "base": "the base tokenization alone",
    "expanded": "the expanded tokenization alone",
}


_INPUTS = {"ner": "text.txt.gz", "classification": "texts.txt", "qa": "questions.jsonl"}


def reads_text(model: str, config: Json, *, is_expanded: bool) -> str:
    """By which tokenizations ``model`` was trained, and whose logits decide; ``config`` has ``mix`` and ``pool``."""
    if not is_expanded:
        return f"The model {escaped(model)} has no added words: it was trained with its own tokenizer.\n"
    return (
        f"It was trained on {_MIX[config['mix']]}, and its logits are those of "
        f"{VIEWS[config['pool']]},\nas in Poerner et al., *Inexpensive Domain Adaptation of Pretrained "
        "Language Models* (arXiv 2004.03354).\n`base_tokenizer/` holds the model's own tokenizer, the folder "
        "itself the expanded one.\n"
    )


def memory_text(memory: Json | None) -> str:
    """What the model has as its memory, by the settings that ``task.json`` has of it."""
    if memory is None:
        return ""
    general = f"{escaped(memory['general']['name'])} (SHA-256 {memory['general']['sha256'][:12]}…)"
    if memory["strategy"] == "logits":
        does = f"The logits that its head gives for the states of the general model {general} are added to its own"
    else:
        does = f"It sees the states of the general model {general} as memory, strategy `{memory['strategy']}`"
    needs = (
        "stayed as it was and is needed beside this folder"
        if memory["frozen"]
        else "was trained, too, and lies in `memory/`"
    )
    return (
        f"\n{does}, as in Wan et al., *G-MAP: General Memory-Augmented Pre-trained Language Model for Domain\n"
        f"Tasks* (arXiv 2212.03613). That model {needs}; plain transformers loads this one without it.\n"
    )


def input_name(task: Json) -> str:
    """What a file that ``task`` (its ``settings()``) predicts on may be called."""
    return "pairs.jsonl" if len(task.get("text_fields", ())) == 2 else _INPUTS[task["task"]]


def memory_words(memory: Json | None, config: Json) -> list[str]:
    """The options by which a model gets its ``memory``, see ``memory_text``; ``config`` has its settings."""
    if memory is None:
        return []
    return ["--memory", short(memory["general"]["source"]), *memory_options(config["memory"])]


def seed_words(seeds: Sequence[int]) -> list[str]:
    """The options that stand for ``seeds``."""
    return [
        *(["--seeds", str(len(seeds))] if len(seeds) > 1 else []),
        *(["--seed", str(seeds[0])] if seeds[0] else []),
    ]


def options_of(config: Json, default: Any) -> list[str]:
    """Every setting of ``config`` that is not that of ``default``, a dataclass, as options."""
    defaults = plain(asdict(default))
    values = {**defaults, **{name: config[name] for name in defaults if name in config}}  # an older one has fewer
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    workers = changed.pop("workers", "several")
    options = [part for name, value in changed.items() for part in _option(name, value)]
    return options + (["--workers", "1"] if workers == "one" else [])


def memory_options(memory: Json) -> list[str]:
    """The options that give the fields of a ``MemoryConfig``, of those that are not the default."""
    layers = ",".join(map(str, memory["layers"]))
    options = options_of({**memory, "layers": layers or []}, MemoryConfig())
    return [_OF_MEMORY.get(option, option) for option in options]


_OF_MEMORY = {f"--{name}": f"--memory-{name}" for name in ("attention", "layers", "source", "project")}


_NEGATIVE = {"cbow_mean": "--cbow-sum", "shrink_windows": "--full-windows", "frozen": "--unfreeze-memory"}


def _option(name: str, value: Any) -> list[str]:
    if value is False:
        return [_NEGATIVE[name]]
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    if isinstance(value, list):
        return [part for item in value for part in (option, str(item))]
    return [option, str(value)]
