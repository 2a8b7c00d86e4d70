"""Properties of an architecture, without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_FIRST_DENSE = "encoder.layer.0.intermediate.dense.weight"


@dataclass(frozen=True)
class Size:
    """The size of an axis of a weight (named without the prefix): ``times`` the setting ``setting``."""

    setting: str
    weight: str
    axis: int = 0
    times: int = 1


@dataclass(frozen=True)
class LayerAttention:
    """The attention of a layer, through which it reads a memory."""

    path: str
    """Module of the attention in a layer."""
    keys_and_values: Callable[[Any, Any], tuple[Any, Any]]
    """A layer and states of a memory (b, m, d) → keys and values (b, m, d)."""
    angles: Callable[[Any, Any, Any, Any], tuple[Any, Any]] | None = None
    """The encoder, a layer, states (b, m, d) and positions (1, m) → cosines and sines (1, m, d_head) of the rotary
    angles of keys; ``None`` without rotary positions."""
    bias: Callable[[Any], Any] | None = None
    """The encoder → bias of the scores of memory, (n_heads,); ``None`` without relative position bias."""
    forward: Callable[..., Any] | None = None
    """Replacement for the attention's ``forward`` if that does not call one of transformers' attention functions; takes
    the attention, such a function, and the arguments of ``forward``."""


@dataclass(frozen=True)
class LayerParts:
    """Modules of a layer between which adapters act; layer norms follow attention and feed-forward part (post-norm), or
    precede them (pre-norm).
    """

    attention_output: str = "attention.output.dropout"
    """Module whose output is that of attention, before the residual connection."""
    ffn: str = "intermediate"
    """Module whose input is that of the feed-forward part."""
    ffn_output: str = "output.dropout"
    """Module whose output is that of the feed-forward part, before the residual connection."""
    norm: str = "output.LayerNorm"
    """The last layer norm, after the residual connection; empty for pre-norm layers."""
    first_norm: str = ""
    """The layer norm before attention; empty for post-norm layers."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """An architecture of transformers."""

    model_type: str
    """As in ``config.json``."""
    prefix: str
    """Prefix of the encoder's weights in a model with a head."""
    decoder: str
    """Weight of the language model's output, (n_rows, dim); not in the file if tied to the embedding."""
    biases: tuple[str, ...]
    """Biases of that output, (n_rows,) each."""
    apply_head: Callable[[Any, Any], Any]
    """A language model and the states of t pieces (t, d) → logits (t, n_rows)."""
    sizes: tuple[Size, ...]
    """Weights whose sizes are in the configuration."""
    memory: LayerAttention | str
    """The attention that reads a memory, or the reason why memory is not supported."""
    adapters: LayerParts | str
    """The modules between which adapters act, or the reason why adapters are not supported."""
    embedding: str = WORD_EMBEDDINGS
    """Weight of the input embedding, (n_rows, dim), with or without ``prefix``."""
    layers: str = "encoder.layer"
    """Module of the layers, after ``prefix``."""
    published_layers: str | None = None
    """Module of the layers in published files, if transformers renames their weights."""
    n_layers: str = "num_hidden_layers"
    """The configuration's key for the number of layers."""
    final_norm: str = ""
    """Layer norm of the last layer's output, after ``prefix``; empty if there is none."""
    heads: tuple[str, ...] = ("TokenClassification", "SequenceClassification", "QuestionAnswering", "MaskedLM")
    """Heads of the models in transformers."""
    has_two_separators: bool | None = False
    """Whether two separators are between the parts of a pair; ``None``: if the separators are RoBERTa's."""
    has_segments: bool = False
    """Whether the model has token types, the parts of a pair."""
    counts_from_padding: bool = False
    """Whether positions start after the id of padding, as in RoBERTa."""


def bert_sizes(width: str = "hidden_size") -> tuple[Size, ...]:
    """The sizes of BERT, with the setting ``width`` for the embedding."""
    return (
        Size(width, WORD_EMBEDDINGS, axis=1),
        POSITIONS,
        Size("type_vocab_size", "embeddings.token_type_embeddings.weight"),
        Size("intermediate_size", _FIRST_DENSE),
        Size("hidden_size", _FIRST_DENSE, axis=1),
    )


POSITIONS = Size("max_position_embeddings", "embeddings.position_embeddings.weight")
BERT_ATTENTION = LayerAttention(
    "attention.self",
    lambda layer, states: (layer.attention.self.key(states), layer.attention.self.value(states)),
)
