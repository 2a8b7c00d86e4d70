import copy
from typing import Any

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy

from greenadapt.models.mlm import MaskedLM
from tests.support.small_tasks import EVERY_FAMILY, TinyModel

pytestmark = pytest.mark.usefixtures("one_thread")


def plain_model(tiny_model: TinyModel, architecture: str, **config: Any) -> Any:
    """A model with a bias that is not zero; ELECTRA with an embedding narrower than its states."""
    if architecture == "Electra":
        config["embedding_size"] = 16
    if architecture == "ModernBert":
        config["decoder_bias"] = True
    folder = tiny_model(f"{architecture}ForMaskedLM", initializer_range=0.1, **config)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_output_embeddings().bias.normal_()
    return model.eval()


def inputs_and_labels(n_rows: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(5, n_rows, (4, 11), generator=draw)
    mask = torch.arange(11) < torch.tensor([[11], [7], [3], [11]])
    ids[~mask] = 1
    labels = torch.where((torch.rand(4, 11, generator=draw) < 0.3) & mask, ids, -100)
    return {"input_ids": ids, "attention_mask": mask.long()}, labels


def ours(model: MaskedLM, inputs: dict[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    positions = torch.nonzero(labels.flatten() != -100).squeeze(1)
    logits = model(positions, **inputs)["logits"]
    assert logits.shape == (len(positions), len(model.get_input_embeddings().old))
    return cross_entropy(logits, labels.flatten()[positions])


@pytest.mark.parametrize("architecture", EVERY_FAMILY)
def test_the_loss_and_its_gradient_are_those_of_plain_transformers(tiny_model: TinyModel, architecture: str) -> None:
    plain = plain_model(tiny_model, architecture)
    n_rows = plain.config.vocab_size
    model = MaskedLM(copy.deepcopy(plain), n_rows).eval()
    inputs, labels = inputs_and_labels(n_rows)
    theirs = plain(**inputs, labels=labels).loss
    loss = ours(model, inputs, labels)
    assert loss.item() == pytest.approx(theirs.item(), abs=1e-5)
    theirs.backward()
    torch.autograd.backward(loss)
    rows = plain.get_input_embeddings().weight
    assert model.get_input_embeddings().added is None
    torch.testing.assert_close(model.get_input_embeddings().old.grad, rows.grad, atol=1e-5, rtol=1e-4)
    bias = plain.get_output_embeddings().bias
    torch.testing.assert_close(model.decoder.bias.grad, bias.grad, atol=1e-6, rtol=1e-4)
    names = dict(model.model.named_parameters())
    compared = 0
    for name, weight in plain.named_parameters():
        if name in names and weight is not bias and weight is not rows and weight.grad is not None:
            torch.testing.assert_close(names[name].grad, weight.grad, atol=1e-5, rtol=1e-4, msg=name)
            compared += 1
    assert compared > 12


def test_added_rows_are_read_and_never_guessed(tiny_model: TinyModel) -> None:
    plain = plain_model(tiny_model, "Bert")
    n_rows = plain.config.vocab_size
    n_old = n_rows - 30  # the last ones are added
    model = MaskedLM(copy.deepcopy(plain), n_old).eval()
    torch.testing.assert_close(model.get_input_embeddings().weight, plain.get_input_embeddings().weight)
    inputs, labels = inputs_and_labels(n_rows)
    labels[labels >= n_old] = -100
    assert (inputs["input_ids"] >= n_old).any()
    theirs = plain(**inputs).logits[..., :n_old]
    loss = ours(model, inputs, labels)
    assert loss.item() == pytest.approx(cross_entropy(theirs.flatten(0, 1), labels.flatten()).item(), abs=1e-5)
    torch.autograd.backward(loss)
    used = torch.zeros(30, dtype=torch.bool)
    used[inputs["input_ids"][inputs["input_ids"] >= n_old] - n_old] = True
    assert (model.get_input_embeddings().added.grad.abs().sum(1) > 0).tolist() == used.tolist()


def test_a_decoder_with_a_weight_of_its_own(tiny_model: TinyModel) -> None:
    plain = plain_model(tiny_model, "Bert", tie_word_embeddings=False)
    assert plain.cls.predictions.decoder.weight is not plain.bert.embeddings.word_embeddings.weight
    n_rows = plain.config.vocab_size
    model = MaskedLM(copy.deepcopy(plain), n_rows).eval()
    inputs, labels = inputs_and_labels(n_rows)
    loss = ours(model, inputs, labels)
    assert loss.item() == pytest.approx(plain(**inputs, labels=labels).loss.item(), abs=1e-5)
    assert any(weight is model.decoder.weight for weight in model.head_parameters)


def test_logits_stay_exact_under_autocast(tiny_model: TinyModel) -> None:
    model = MaskedLM(plain_model(tiny_model, "Bert"), 100).eval()
    inputs, _ = inputs_and_labels(100)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(torch.arange(5), **inputs)["logits"]
    assert logits.dtype == torch.float32
    assert (logits != logits.bfloat16().float()).any()
