"""A general model whose states are memory for the trained domain model (G-MAP, arXiv 2212.03613).

The baseline without memory has one head for both models, whose logits are added.
"""

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from greenadapt.config import MemoryConfig
from greenadapt.errors import UsageError
from greenadapt.models.memory.attention import MEMORY_TYPES, Memory, use_memory_attention
from greenadapt.models.memory.choice import MemoryPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel


KEYWORDS = ("memory_ids", "memory_mask", "memory_types", "memory_states")
"""The general model's arguments in a model with memory."""


class GeneralMemory(nn.Module):
    """A general model, and the trained weights that turn its states into memory.

    ``general`` is an encoder without pooler, of L_G layers and width d_G; ``gates`` has a linear map R^{d_G} → R for
    each target of a gated ``plan``; ``project`` is a linear map from d_G to the domain model's width d_D, or ``None``;
    ``biases`` has (n_heads,) for each target under the attention variant ``gate``. A ``frozen`` general model stays in
    evaluation mode and gets no gradients.
    """

    def __init__(self, general: "PreTrainedModel", plan: MemoryPlan, config: MemoryConfig, domain: Any) -> None:
        """``domain`` is the domain model's configuration."""
        super().__init__()
        width, n_targets = general.config.hidden_size, len(plan.targets)
        self.plan = plan
        self.variant = config.attention
        self.frozen = config.frozen
        self.general = general.requires_grad_(not config.frozen)
        self.gates = nn.ModuleList(_linear(width, 1) for _ in range(n_targets * plan.gated))
        self.project = _linear(width, domain.hidden_size) if config.project else None
        n_biases = n_targets * (config.attention == "gate")
        self.biases = nn.ParameterList(torch.zeros(domain.num_attention_heads) for _ in range(n_biases))

    def train(self, mode: bool = True) -> "GeneralMemory":
        """As in torch, except that a frozen general model stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.general.train(False)
        return self

    def general_states(self, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """The states ``plan.states`` for the general model's inputs (b, m), their mask and types: (S, b, m, d_G)."""
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        arguments = {name: value for name, value in inputs.items() if value is not None}
        is_half = self.general.dtype in (torch.float16, torch.bfloat16)  # autocast would only widen its layer norms
        precision = torch.autocast(ids.device.type, enabled=False) if is_half else nullcontext()
        with precision, torch.no_grad() if self.frozen else nullcontext():
            hidden = self.general(**arguments, output_hidden_states=True).hidden_states
            return torch.stack([hidden[state] for state in self.plan.states])

    def read(
        self,
        memory_ids: Tensor | None = None,
        memory_mask: Tensor | None = None,
        memory_types: Tensor | None = None,
        memory_states: Tensor | None = None,
    ) -> Tensor:
        """The states (S, b, m, d_G) of inputs (b, m), or cached; raises ``ValueError`` for both or neither of them."""
        if (memory_ids is None) == (memory_states is None):
            raise ValueError("a model with memory needs either memory_ids or memory_states")
        if memory_ids is not None:
            return self.general_states(memory_ids, memory_mask, memory_types)
        assert memory_states is not None
        if not self.frozen:
            raise ValueError("the states of a general model that is trained cannot be cached: give memory_ids")
        if len(memory_states) != len(self.plan.states):
            raise ValueError(f"memory_states has {len(memory_states)} states, need {len(self.plan.states)}")
        return memory_states

    def forward(self, **arguments: Tensor | None) -> Memory:
        """The memory of the domain model's layers; ``arguments`` as of ``read``."""
        states = self.read(**arguments)
        fused = {}
        for number, target in enumerate(self.plan.targets):
            chosen = states[self.plan.rows(number)]
            fused[target - 1] = self.projected(fuse(chosen, self.gates[number]) if self.plan.gated else chosen[0])
        mask = arguments.get("memory_mask")
        biases = {target - 1: bias for target, bias in zip(self.plan.targets, self.biases, strict=False)}
        return Memory(fused, None if mask is None else mask.bool(), self.variant, biases)

    def projected(self, states: Tensor) -> Tensor:
        """States (b, m, d_G) projected to the domain model's width: (b, m, d_D)."""
        if self.project is None:
            return states
        projected: Tensor = self.project(states.to(self.project.weight.dtype))
        return projected


def fuse(states: Tensor, gate: Any) -> Tensor:
    """Σ_l α_l m_l for each piece, of the states m (S, b, m, d_G): (b, m, d_G), in their dtype.

    α is ``gate_weights`` of the linear layer ``gate``. Equations 9 to 11 of arXiv 2212.03613.
    """
    with torch.autocast(states.device.type, enabled=False):  # which would copy all states to another dtype
        weights = gate_weights(states, gate).to(states.dtype)
        fused: Tensor = (weights.permute(1, 2, 0)[:, :, None] @ states.permute(1, 2, 0, 3)).squeeze(2)
    return fused


def gate_weights(states: Tensor, gate: Any) -> Tensor:
    """α = softmax over the layers of g(m), of the states m (S, b, m, d_G): (S, b, m), float32 or wider."""
    scores = nn.functional.linear(states, gate.weight.to(states.dtype), gate.bias.to(states.dtype)).squeeze(-1)
    return torch.softmax(scores, 0, torch.promote_types(scores.dtype, torch.float32))


def attach_memory(
    model: "PreTrainedModel", general: "PreTrainedModel", config: MemoryConfig, seed: int
) -> GeneralMemory:
    """Use the states of ``general`` as memory of ``model``, which then also takes the arguments ``KEYWORDS``.

    The result is ``model.memory``, on the model's device; ``seed`` initializes the new weights. Raises
    ``UsageError`` if the models or ``config`` do not fit.
    """
    plan = MemoryPlan.of(config, model.config.num_hidden_layers, general.config.num_hidden_layers)
    if not plan.targets:
        raise ValueError(f"strategy {config.strategy} gives no layer a memory")
    use_memory_attention(model)
    memory = add_general(model, general, plan, config, seed)
    model.register_forward_pre_hook(_pass_memory, prepend=True, with_kwargs=True)
    return memory


def add_general(
    model: "PreTrainedModel", general: "PreTrainedModel", plan: MemoryPlan, config: MemoryConfig, seed: int
) -> GeneralMemory:
    """Make ``general`` the ``memory`` of ``model``, without changing its forward pass.

    Raises ``UsageError`` if their widths differ without a projection.
    """
    widths = general.config.hidden_size, model.config.hidden_size
    if widths[0] != widths[1] and not config.project:
        raise UsageError(
            f"the general model is {widths[0]} wide and the domain model {widths[1]}",
            "use --memory-project, or models of the same width",
        )
    memory = GeneralMemory(general, plan, config, model.config)
    # Another seed than that of the head, whose numbers would recur; torch reads only the last 32 bits.
    generator = torch.Generator().manual_seed(2**32 - 1 - seed)
    if config.gate_init == "normal":
        gates: Any = memory.gates
        for gate in gates:
            nn.init.normal_(gate.weight, std=0.02, generator=generator)
    if memory.project is not None:  # a standard deviation that keeps the scale of the states
        nn.init.normal_(memory.project.weight, std=widths[0] ** -0.5, generator=generator)
    for learnt in (memory.gates, memory.biases, *filter(None, [memory.project])):
        learnt.to(model.dtype)
    memory.train(model.training)
    model.memory = memory.to(model.device)
    return memory


def _linear(n_in: int, n_out: int) -> nn.Linear:
    """A linear layer of zeros, made without using torch's random numbers."""
    with torch.random.fork_rng(devices=[]):
        layer = nn.Linear(n_in, n_out)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _pass_memory(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = _pop_keywords(kwargs)
    return args, {**kwargs, "memory": model.memory(**arguments)}


def _pop_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: kwargs.pop(name) for name in KEYWORDS if name in kwargs}


_FIRST_PIECE = "ForSequenceClassification"
"""Classes of this name read only the first piece."""


def attach_logits_fusion(
    model: "PreTrainedModel", general: "PreTrainedModel", config: MemoryConfig, seed: int
) -> GeneralMemory:
    """Apply the head of ``model``, and its pooler, to ``general`` too, and add the logits (arXiv 2212.03613).

    ``model`` then also takes the arguments ``KEYWORDS``; its logits are the sum of those for its own last states and
    for those of ``general``. Heads that label pieces need inputs of one length, else ``ValueError``. The result is
    ``model.memory``. Raises ``UsageError`` if the models or ``config`` do not fit.
    """
    if model.config.model_type not in MEMORY_TYPES:
        raise UsageError(
            f"--strategy logits does not support models of type {model.config.model_type}",
            f"use one of type {', '.join(MEMORY_TYPES)}",
        )
    reads_first = type(model).__name__.endswith(_FIRST_PIECE)
    if getattr(model.config, "classifier_pooling", "cls") == "mean" and reads_first:
        raise UsageError(
            "--strategy logits adds logits of the first piece, and the head of this model reads the mean of all",
            "use another strategy",
        )
    plan = MemoryPlan.of(config, model.config.num_hidden_layers, general.config.num_hidden_layers)
    if plan.targets:
        raise ValueError(f"strategy {config.strategy} adds no logits")
    memory = add_general(model, general, plan, config, seed)
    passed: dict[str, Tensor] = {}  # from one hook to the next: not all models pass arguments on to their encoder
    model.register_forward_pre_hook(partial(_read_general, passed), with_kwargs=True)
    model.base_model.register_forward_hook(partial(_stack, reads_first, passed))
    model.register_forward_hook(_add_halves)
    return memory


def _read_general(
    passed: dict[str, Tensor], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Remove the arguments of the general model, and pass its states (b, m, d_D) to ``_stack``."""
    if kwargs.get("labels") is not None or kwargs.get("start_positions") is not None:
        raise ValueError("a model whose logits are added computes no loss: leave out the labels")
    passed["states"] = model.memory.projected(model.memory.read(**_pop_keywords(kwargs))[0])
    return args, kwargs


def _stack(reads_first: bool, passed: dict[str, Tensor], encoder: Any, args: tuple[Any, ...], output: Any) -> Any:
    """The encoder's output with the states of the general model below its own: (2 b, n, d_D)."""
    domain: Tensor = output.last_hidden_state
    general = passed.pop("states").to(domain.dtype)
    if getattr(encoder, "pooler", None) is not None:
        output.pooler_output = torch.cat([output.pooler_output, encoder.pooler(general)])
    if reads_first:
        domain, general = domain[:, :1], general[:, :1]
    if domain.shape[1] != general.shape[1]:
        raise ValueError(
            f"the domain model reads {domain.shape[1]} pieces and the general model {general.shape[1]}: "
            "logits of pieces can only be added if both read the same"
        )
    output.last_hidden_state = torch.cat([domain, general])
    return output


def _add_halves(model: Any, args: tuple[Any, ...], output: Any) -> Any:
    for name in ("logits", "start_logits", "end_logits"):
        if name in output:
            domain, general = output[name].chunk(2)
            output[name] = domain + general
    return output
