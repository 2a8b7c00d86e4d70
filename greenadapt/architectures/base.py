"""What is known of an architecture, without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CAUSAL, SEQ2SEQ = "CausalLM", "Seq2SeqLM"
"""The heads of models that write text: of a decoder, and of an encoder with one."""
WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_FIRST_DENSE = "encoder.layer.0.intermediate.dense.weight"


@dataclass(frozen=True)
class Size:
    """An axis of a weight, after the prefix, of the size ``setting``, or ``times`` that."""

    setting: str
    weight: str
    axis: int = 0
    times: int = 1


@dataclass(frozen=True)
class LayerAttention:
    """Where a layer attends, so that it can see a memory."""

    path: str
    """The attention's module in a layer."""
    keys_and_values: Callable[[Any, Any], tuple[Any, Any]]
    """A layer and states (b, m, d) that it sees as memory → keys and values (b, m, d)."""
    angles: Callable[[Any, Any, Any, Any], tuple[Any, Any]] | None = None
    """The encoder, a layer, states (b, m, d) and positions (1, m) → cosines and sines (1, m, d_head) of the angles by
    which keys are rotated; ``None`` if they are not."""
    bias: Callable[[Any], Any] | None = None
    """The encoder → what is added to the scores of memory, (n_heads,), where a bias tells positions."""
    forward: Callable[..., Any] | None = None
    """What to run in place of the attention's ``forward`` where that does not call one of transformers' attention
    functions: takes the attention, such a function, and the arguments of ``forward``."""


@dataclass(frozen=True)
class LayerParts:
    """Modules in a layer between which adapters act, of the kind that normalizes behind attention and behind the
    feed-forward part, or before each.
    """

    attention_output: str = "attention.output.dropout"
    """Its output is that of attention, before it is added to the layer's input."""
    ffn: str = "intermediate"
    """Its input is that of the feed-forward part."""
    ffn_output: str = "output.dropout"
    """Its output is that of the feed-forward part, before it is added to that part's input."""
    norm: str = "output.LayerNorm"
    """The last layer norm, which reads that sum; empty if the sum is the layer's output."""
    first_norm: str = ""
    """Its output is what attention reads; empty if that is the layer's input."""


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
    """Weights whose sizes its configuration tells."""
    memory: LayerAttention | str
    """How a general model's states are its memory, or why they cannot be."""
    adapters: LayerParts | str
    """Where adapters act, or why they cannot."""
    embedding: str = WORD_EMBEDDINGS
    """Weight of the input embedding, (n_rows, dim), after ``prefix`` or alone."""
    embedding_again: tuple[str, ...] = ()
    """Other names under which files have the embedding once more; transformers takes the first."""
    layers: str = "encoder.layer"
    """Module of the layers, after ``prefix``."""
    published_layers: str | None = None
    """The same in published files, if transformers renames their weights."""
    n_layers: str = "num_hidden_layers"
    """The configuration's key for their number."""
    final_norm: str = ""
    """Module that normalizes the last layer's output, after ``prefix``; empty if there is none."""
    heads: tuple[str, ...] = ("TokenClassification", "SequenceClassification", "QuestionAnswering", "MaskedLM")
    """What transformers has models for."""
    has_two_separators: bool | None = False
    """Whether there are two separators between the parts of a pair; ``None``: if they are RoBERTa's."""
    has_segments: bool = False
    """Whether it is told which part of a pair a piece is of."""
    tokenizer_class: str | None = None
    """transformers' class of its tokenizer, if one is made of vocabulary files where there is no ``tokenizer.json``."""
    counts_from_padding: bool = False
    """Whether positions are counted from behind the padding's id, and pieces of padding have none."""

    @property
    def is_generative(self) -> bool:
        """Whether it writes text: it gets rows for words, and nothing else is done with it."""
        return not {CAUSAL, SEQ2SEQ}.isdisjoint(self.heads)


def bert_sizes(width: str = "hidden_size") -> tuple[Size, ...]:
    """Those of BERT, whose embedding is as wide as the setting ``width``."""
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
