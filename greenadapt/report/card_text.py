"""What the READMEs of models that were fine-tuned for one task or for many have in common."""

from collections.abc import Sequence
from typing import Any

from greenadapt.names import short
from greenadapt.report.card import memory_options
from greenadapt.report.markdown import escaped
from greenadapt.report.score_tables import VIEWS

Json = dict[str, Any]

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
