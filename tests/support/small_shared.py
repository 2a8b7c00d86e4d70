"""Small encoders for several tasks, whose weights all differ from zero, and plain models with the same weights."""

from collections.abc import Mapping
from typing import Any

import torch

from greenadapt.config import AdapterConfig
from greenadapt.models.adapters.multitask import MultitaskModel, TaskHeadSpec
from tests.support.small_encoders import encoder

ARCHITECTURES = ("Bert", "Roberta", "XLMRoberta")
N_OUTPUTS = {"SequenceClassification": 3, "TokenClassification": 4, "QuestionAnswering": 2}


def shared_encoder(architecture: str = "Bert", **config: Any) -> Any:
    """An encoder with a pooler, if its kind has one."""
    return encoder(architecture, pooler=True, **config)


def moved(module: Any) -> Any:
    """``module`` after a small random change of every weight."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw).to(parameter), alpha=0.2)
    return module


def multitask(
    adapters: Mapping[str, AdapterConfig], head: str = "SequenceClassification", encoder: Any = None, seed: int = 1
) -> MultitaskModel:
    """A fresh model with a task for each adapter."""
    encoder = shared_encoder() if encoder is None else encoder
    specs = {task: TaskHeadSpec(head, N_OUTPUTS[head], adapter) for task, adapter in adapters.items()}
    return MultitaskModel.of(encoder, specs, seed)


def plain_model(model: MultitaskModel, task: str, architecture: str = "Bert") -> Any:
    """transformers' model for the head of ``task``, with the encoder's and the head's weights."""
    import transformers

    part = model.part(task)
    model_class = getattr(transformers, f"{architecture}For{part.spec.head}")
    config = type(model.config)(**{**model.config.to_dict(), "num_labels": part.spec.n_outputs})
    plain = model_class(config)
    lost = plain.base_model.load_state_dict(model.encoder.state_dict(), strict=False)
    assert not lost.missing_keys
    plain.get_submodule("qa_outputs" if "Question" in part.spec.head else "classifier").load_state_dict(
        part.head.state_dict()
    )
    return plain.train(model.training)
