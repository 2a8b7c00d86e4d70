"""Hidden states by plain transformers."""

from pathlib import Path

import torch
import transformers


def states(folder: Path, text: str) -> torch.Tensor:
    """The last hidden states of a model for ``text``, (1, pieces, dim)."""
    kinds = (transformers.AutoModel, transformers.AutoTokenizer)
    model, tokenizer = (kind.from_pretrained(folder) for kind in kinds)
    with torch.no_grad():
        last: torch.Tensor = model.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state
    return last
