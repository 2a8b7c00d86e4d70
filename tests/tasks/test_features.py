"""Inputs equal those that plain transformers puts together."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError, UsageError
from greenadapt.tasks.base import Encoder

WHOLE = ["BertModel", "RobertaModel", "XLMRobertaModel", "NomicBertModel", "GteModel"]
ARCHITECTURES = [*WHOLE, "ElectraModel", "DistilBertModel", "MPNetModel"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_single_and_pair_are_those_of_transformers(architecture: str, tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model(architecture)
    encoder = Encoder.of(Checkpoint.open(folder))
    theirs = AutoTokenizer.from_pretrained(folder)
    first, second = (encoder.tokenizer.encode(text).base.ids for text in ("heart rate", "of the patient"))

    ids, types, begin = encoder.single(first)
    assert ids.tolist() == theirs("heart rate", padding=False)["input_ids"]
    assert not types.any()
    assert ids[begin : begin + len(first)].tolist() == first.tolist()

    ids, types, begin = encoder.pair(first, second)
    assert ids[begin : begin + len(second)].tolist() == second.tolist()
    assert len(ids) == len(first) + len(second) + encoder.n_special_pair
    if architecture in WHOLE:  # the others' folders hold BERT's template
        expected = theirs("heart rate", "of the patient", padding=False)
        assert ids.tolist() == expected["input_ids"]
        no_types = (
            types if architecture == "GteModel" else np.zeros(len(ids))
        )  # some have segments, and BERT's tokenizer
        assert types.tolist() == expected.get("token_type_ids", no_types.tolist())


def test_places_of_the_model_bound_the_length(tiny_model: Callable[..., Path]) -> None:
    bert, roberta = (Checkpoint.open(tiny_model(name)) for name in ("BertModel", "RobertaModel"))
    assert Encoder.of(bert).max_length == 160
    # RoBERTa counts positions from behind its padding's id, 1.
    assert Encoder.of(roberta).max_length == 158
    assert Encoder.of(bert, 20).max_length == 20
    with pytest.raises(UsageError, match="at most 160"):
        Encoder.of(bert, 161)
    with pytest.raises(InputError, match="21 pieces, the model reads 20"):
        Encoder.of(bert, 20).single(np.zeros(19, np.int32))


def test_a_model_without_added_words_says_so(tiny_model: Callable[..., Path]) -> None:
    encoder = Encoder.of(Checkpoint.open(tiny_model()))
    assert not encoder.has_words
    both = encoder.tokenizer.encode("tachycardia with heart rate")
    assert both.base.ids.tolist() == both.expanded.ids.tolist()
