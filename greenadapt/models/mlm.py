"""Masked language models whose output is that over the old rows of the vocabulary, at the masked pieces alone."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (its usual name)

from greenadapt.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_APPLY_HEAD: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "bert": lambda model, states: model.cls(states),
    "roberta": lambda model, states: model.lm_head(states),
    "xlm-roberta": lambda model, states: model.lm_head(states),
    "mpnet": lambda model, states: model.lm_head(states),
    "electra": lambda model, states: model.generator_lm_head(model.generator_predictions(states)),
    "distilbert": lambda model, states: model.vocab_projector(
        model.vocab_layer_norm(model.activation(model.vocab_transform(states)))
    ),
    "modernbert": lambda model, states: model.decoder(model.head(states)),
}
"""Model type → its head, (t, d) states of pieces → (t, n_rows) logits."""


class SplitEmbedding(nn.Module):
    """An embedding in two parts: ``old`` (n_old, d), the rows of the base vocabulary, and ``added`` (k, d) below them.

    ``added`` is ``None`` where there are none.
    """

    def __init__(self, embedding: nn.Embedding, n_old: int) -> None:
        super().__init__()
        weight = embedding.weight.detach()
        self.padding_idx = embedding.padding_idx
        self.old = nn.Parameter(weight[:n_old].clone())
        self.added = nn.Parameter(weight[n_old:].clone()) if len(weight) > n_old else None

    @property
    def weight(self) -> torch.Tensor:
        """Both parts below each other, (n_old + k, d)."""
        return self.old if self.added is None else torch.cat([self.old, self.added])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of ``ids`` (…): (…, d)."""
        n_old = len(self.old)
        if self.added is None:
            return F.embedding(ids, self.old, self.padding_idx)
        old = F.embedding(ids.clamp(max=n_old - 1), self.old, self.padding_idx)
        added = F.embedding((ids - n_old).clamp(min=0), self.added)
        return torch.where((ids >= n_old)[..., None], added, old)


class OldRowsDecoder(nn.Module):
    """A head's last layer, with an output for each old row: tied to these, or with a ``weight`` (n_old, d) of its own.

    ``bias`` is (n_old,), or ``None`` in a model that has none.
    """

    def __init__(self, decoder: nn.Linear, embedding: SplitEmbedding, *, is_tied: bool) -> None:
        super().__init__()
        n_old = len(embedding.old)
        self._embedding = (embedding,)  # in a tuple, so that its weights are not a second time among this module's
        self.weight = None if is_tied else nn.Parameter(decoder.weight.detach()[:n_old].clone())
        bias = decoder.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach()[:n_old].clone())

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (t, n_old) float32, under autocast too, of transformed states (t, d)."""
        weight = self._embedding[0].old if self.weight is None else self.weight
        with torch.autocast(states.device.type, enabled=False):
            return F.linear(states.float(), weight, self.bias)


class MaskedLM(nn.Module):
    """A transformers model ``…ForMaskedLM``, ``model``, whose head sees the masked pieces alone.

    The softmax then costs 15 % of what it does over all pieces, and its logits are those of the old rows whatever the
    vocabulary: added words are read and never guessed. Replaces the embedding and the decoder of ``model``, which holds
    ``n_old`` old rows and any number of added ones. Raises ``UsageError`` for an architecture that it does not know.
    """

    def __init__(self, model: "PreTrainedModel", n_old: int) -> None:
        super().__init__()
        kind = str(model.config.model_type)
        if kind not in _APPLY_HEAD:
            raise UsageError(
                f"a model of type {kind} cannot be trained as a masked language model",
                f"give one of type {', '.join(_APPLY_HEAD)}",
            )
        self.model = model
        self._apply_head = _APPLY_HEAD[kind]
        plain: Any = model
        embedding, decoder = plain.get_input_embeddings(), plain.get_output_embeddings()
        if not isinstance(embedding, nn.Embedding) or not isinstance(decoder, nn.Linear):
            raise TypeError(f"{type(model).__name__} has no embedding or no decoder")
        is_tied = decoder.weight is embedding.weight
        rows = SplitEmbedding(embedding, n_old)
        model.set_input_embeddings(rows)
        _replace(model, decoder, OldRowsDecoder(decoder, rows, is_tied=is_tied))

    @property
    def config(self) -> Any:
        """The transformers configuration."""
        return self.model.config

    @property
    def encoder(self) -> Any:
        """The transformers model without its head."""
        return self.model.base_model

    @property
    def embedding(self) -> SplitEmbedding:
        """The rows."""
        model: Any = self.model
        rows: SplitEmbedding = model.get_input_embeddings()
        return rows

    def get_input_embeddings(self) -> SplitEmbedding:
        """``embedding``, as it is called for transformers' models."""
        return self.embedding

    @property
    def decoder(self) -> OldRowsDecoder:
        """The head's last layer."""
        model: Any = self.model
        decoder: OldRowsDecoder = model.get_output_embeddings()
        return decoder

    @property
    def head_parameters(self) -> list[nn.Parameter]:
        """All weights that are not the encoder's; a tied decoder's are."""
        encoder = {id(weight) for weight in self.encoder.parameters()}
        return [weight for weight in self.parameters() if id(weight) not in encoder]

    def forward(
        self, positions: torch.Tensor, token_type_ids: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """``logits`` (t, n_old) at ``positions`` (t,) of the b · n pieces end to end; the rest is for the encoder."""
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        states = self.encoder(**inputs).last_hidden_state
        return {"logits": self._apply_head(self.model, states.flatten(0, 1).index_select(0, positions))}


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put ``new`` into the place of ``old``; a bias that its parent has a second time goes."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if child is old:
                setattr(parent, name, new)
                if isinstance(getattr(parent, "bias", None), nn.Parameter):
                    parent.register_parameter("bias", None)
                return
