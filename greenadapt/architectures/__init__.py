"""The architectures that greenadapt supports, by ``model_type``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenadapt.architectures.base import Architecture
from greenadapt.architectures.encoders import ENCODERS

ARCHITECTURES: Mapping[str, Architecture] = {kind.model_type: kind for kind in ENCODERS}
"""``model_type`` → architecture."""


_OF_BERT = {
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size"),
}
"""Keys of the configurations of BERT and RoBERTa."""
_CLASS = re.compile(r"(\w+?)(?:For[A-Z]\w*|(?:LMHead)?Model)")


def read_model_type(config: Mapping[str, Any], folder: Path) -> str | None:
    """The ``model_type`` of a configuration, which old releases of transformers did not write.

    Without ``model_type`` it is inferred from the first of ``architectures``, such as ``BertForMaskedLM``, or, for a
    configuration with the keys of BERT and RoBERTa, from the vocabulary in ``folder``; ``None`` if it is not clear.
    """
    if config.get("model_type"):
        return str(config["model_type"])
    names = config.get("architectures")
    match = _CLASS.fullmatch(str(names[0])) if isinstance(names, list) and names else None
    if match:
        return next((name for name in ARCHITECTURES if re.sub("[-_]", "", name) == match[1].lower()), None)
    if not config.keys() >= _OF_BERT:
        return None
    types = {"vocab.txt": "bert", "merges.txt": "roberta"}
    return next((kind for file, kind in types.items() if (folder / file).exists()), None)
