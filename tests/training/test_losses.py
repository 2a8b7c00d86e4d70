from typing import Any

import pytest
import torch

from greenadapt.training.batches import loss_sum, n_terms

CONFIG: dict[str, Any] = dict(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
)


def _model(head: str, **config: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, f"BertFor{head}")(transformers.BertConfig(**CONFIG, **config)).eval()


def _check_equals_transformers(model: Any, head: str, targets: torch.Tensor, **labels: torch.Tensor) -> None:
    ids, mask = torch.randint(5, 50, (4, 9)), torch.ones(4, 9, dtype=torch.int64)
    output = model(input_ids=ids, attention_mask=mask, **labels)
    mean = loss_sum(head, output, targets, mask) / n_terms(head, targets)
    torch.testing.assert_close(mean, output.loss)


def test_token_classification() -> None:
    labels = torch.randint(0, 3, (4, 9))
    labels[:, 5:] = -100
    assert n_terms("TokenClassification", labels) == 20
    _check_equals_transformers(
        _model("TokenClassification", num_labels=3), "TokenClassification", labels, labels=labels
    )


def test_sequence_classification() -> None:
    labels = torch.tensor([0, 2, 1, 1])
    model = _model("SequenceClassification", num_labels=3)
    _check_equals_transformers(model, "SequenceClassification", labels, labels=labels)


def test_regression() -> None:
    values = torch.tensor([0.5, -2.0, 3.0, 1.0])
    model = _model("SequenceClassification", num_labels=1)
    _check_equals_transformers(model, "SequenceClassification", values, labels=values)


def test_question_answering() -> None:
    spans = torch.tensor([[1, 2], [0, 8], [4, 4], [3, 7]])
    _check_equals_transformers(
        _model("QuestionAnswering"),
        "QuestionAnswering",
        spans,
        start_positions=spans[:, 0].contiguous(),
        end_positions=spans[:, 1].contiguous(),
    )


def test_padding_is_no_answer() -> None:
    output = {"start_logits": torch.randn(1, 4), "end_logits": torch.randn(1, 4)}
    padded = {name: torch.cat([logits, torch.full((1, 3), 9.0)], dim=1) for name, logits in output.items()}
    targets, mask = torch.tensor([[1, 3]]), torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    expected = loss_sum("QuestionAnswering", output, targets, mask[:, :4])
    torch.testing.assert_close(loss_sum("QuestionAnswering", padded, targets, mask), expected)


@pytest.mark.parametrize("head", ["TokenClassification", "SequenceClassification"])
def test_bfloat16_logits_are_summed_in_float32(head: str) -> None:
    targets = torch.zeros((2, 3) if head == "TokenClassification" else 2, dtype=torch.int64)
    logits = torch.randn(*targets.shape, 5, dtype=torch.bfloat16)
    loss = loss_sum(head, {"logits": logits}, targets, torch.ones(2, 3))
    expected = -logits.float().log_softmax(-1)[..., 0].sum()
    torch.testing.assert_close(loss, expected)
