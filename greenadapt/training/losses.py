"""The loss of each head as a sum over its terms, so that a step's mean does not depend on how the step is cut."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import cross_entropy, mse_loss

from greenadapt.tasks.base import IGNORED


def n_terms(head: str, targets: Any) -> int:
    """How many terms the loss has for ``targets``, an array or a tensor: labelled pieces, texts, or windows."""
    return int((targets != IGNORED).sum()) if head == "TokenClassification" else len(targets)


def loss_sum(head: str, output: Mapping[str, torch.Tensor], targets: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum over the terms, () float32, for what a model returns for a batch of b inputs of n pieces.

    ``TokenClassification``: -log p of the label of each labelled piece, ``targets`` (b, n), -100 if there is none.
    ``SequenceClassification``: -log p of the class of each text for whole numbers, the squared error for others, (b,).
    ``QuestionAnswering``: the mean of -log p of the first and of the last piece of each window, (b, 2), where the
    probabilities are those of all pieces that are not padding. ``mask`` (b, n) is 1 where a piece is not padding.
    ``MaskedLM``: -log p of each of the t pieces that were masked, ``targets`` (t,), for logits (t, n_rows) of these.
    """
    if head == "QuestionAnswering":
        logits = torch.stack([output["start_logits"], output["end_logits"]], dim=1).float()
        logits = logits.masked_fill(mask[:, None] == 0, -torch.inf)
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 2
    logits = output["logits"].float()
    if targets.is_floating_point():
        return mse_loss(logits.squeeze(-1), targets, reduction="sum")
    return cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def divergence_sum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """½ (KL(p‖q) + KL(q‖p)) = ½ Σ (p - q) (log p - log q) of the softmax p and q of two logits (n, k), summed over n.

    The gradient goes to both, as in R-Drop (arXiv 2106.14448). Returns () float32.
    """
    log_p, log_q = first.float().log_softmax(-1), second.float().log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2


def teaching_sum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """KL(t‖p) + KL(t‖q) of the softmax p and q of two logits (n, k), t that of their mean, summed over n.

    t is a teacher, without a gradient. Returns () float32.
    """
    log_t = ((first + second).detach().float() / 2).log_softmax(-1)
    views = torch.stack([first, second]).float().log_softmax(-1)
    return (log_t.exp() * (log_t - views)).sum()


def squared_teaching_sum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """(p - t)² + (q - t)² of two predicted numbers (n, 1), t their mean, summed over n; no gradient goes through t."""
    views = torch.stack([first, second]).float()
    return (views - views.mean(dim=0).detach()).square().sum()
