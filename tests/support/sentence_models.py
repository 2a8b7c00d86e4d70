"""Tiny models with the files of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

_TYPES = "sentence_transformers.models."


def describe_sentences(folder: Path, *kinds: str, max_length: int = 12, **pooling: Any) -> Path:
    """Write ``modules.json`` and what belongs to it, with the modules ``kinds`` behind the transformer."""
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{_TYPES}Transformer"}]
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    for number, kind in enumerate(kinds, start=1):
        module_folder = folder / f"{number}_{kind}"
        module_folder.mkdir()
        modules.append({"idx": number, "name": str(number), "path": module_folder.name, "type": f"{_TYPES}{kind}"})
        if kind == "Pooling":
            config = {"word_embedding_dimension": width, **(pooling or {"pooling_mode_mean_tokens": True})}
            (module_folder / "config.json").write_text(json.dumps(config))
        if kind == "Dense":
            sizes = {"in_features": width, "out_features": 7, "bias": True}
            activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
            (module_folder / "config.json").write_text(json.dumps({**sizes, **activation}))
            draw = torch.Generator().manual_seed(1)
            weights = {"linear.weight": torch.randn(7, width, generator=draw), "linear.bias": torch.ones(7)}
            save_file(weights, module_folder / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps(modules))
    settings = {"max_seq_length": max_length, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    return folder
