"""Adapt a pretrained language model to a domain on CPU, then fine-tune it.

raw text ──corpus──▶ words ──w2v──▶ word vectors ──align──▶ linear map ──expand──▶ adapted model folder
adapted model folder ──pretrain──▶ the same, trained on text
adapted model folder ──finetune──▶ task model folder ──predict──▶ labels, entities, answers
question answering model, adapted or not ──qa──▶ answers in whole documents
documents ──index──▶ index ──search, qa──▶ paragraphs, answers in a collection

The packages, from the bottom up, in the order in which they import each other:

- ``store``: what is on disk, whoever wrote it (arrays, locks, manifests, the workspace)
- ``tokenization``: text to words and pieces; ``DualTokenizer`` gives both views of a text
- ``corpus``: raw text to counted words; ``checkpoints``: model folders, read and written without torch
- ``vectors``: from counted words to rows of an embedding (CBOW, the map, the new rows)
- ``tasks``: files to examples to what a model reads, and its logits to predictions and scores
- ``models``: torch models, opened with the rows they need; adapters and memory
- ``training`` and ``inference``; ``report``: model cards and tables
- ``stages``: one function a command, folder in, folder out; ``cli``: the commands; ``api``: the same for Python

The methods are those of Poerner et al., "Inexpensive Domain Adaptation of Pretrained Language Models" (arXiv
2004.03354), Wan et al., "G-MAP" (arXiv 2212.03613), and Stickland and Murray, "BERT and PALs" (arXiv 1902.02671).

Nothing is imported before it is used: the command line must start at once, and so must ``import greenadapt``.
"""

from greenadapt.version import __version__ as __version__

TYPE_CHECKING = False  # not typing's, whose import would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

    from greenadapt.api.calls import adapt, finetune, finetune_tasks
    from greenadapt.api.models import AdaptedModel, EncoderModel, TaskModel, load
    from greenadapt.inference.search.index import Index

__all__ = [
    "AdaptedModel",
    "EncoderModel",
    "Index",
    "TaskModel",
    "adapt",
    "finetune",
    "finetune_tasks",
    "load",
]

_LIES_IN = {
    "AdaptedModel": "api.models",
    "EncoderModel": "api.models",
    "Index": "inference.search.index",
    "TaskModel": "api.models",
    "adapt": "api.calls",
    "finetune": "api.calls",
    "finetune_tasks": "api.calls",
    "load": "api.models",
}


def __getattr__(name: str) -> "Any":
    if name not in _LIES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LIES_IN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
