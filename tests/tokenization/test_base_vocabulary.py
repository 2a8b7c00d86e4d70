"""What words would be cut into without their rows, against tokenizers that lack these."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from greenadapt.errors import InputError
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from tests.conftest import bytelevel_tokenizer


def lacking(tokenizer: Tokenizer, entry: str) -> Tokenizer:
    """The model of ``tokenizer`` without ``entry``."""
    state = json.loads(tokenizer.to_str())
    model = state["model"]
    if model["type"] == "BPE":
        pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if "".join(pair) != entry]
    else:
        del model["vocab"][entry]
    return Tokenizer(Tokenizer.from_str(json.dumps(state)).model)


@pytest.mark.slow
def test_wordpiece(minilm: Path) -> None:
    vocabulary = BaseVocabulary(load_tokenizer(minilm))
    words = ["insulin", "the", "tachycardia", "walking", "1990s", "of", "a", "女"]
    words = [word for word in words if word in vocabulary.whole_words]
    assert {"insulin", "a", "女"} <= {*words}
    for word, pieces in zip(words, vocabulary.pieces_without_row(words), strict=True):
        expected = lacking(vocabulary.tokenizer, word).encode(word, add_special_tokens=False)
        assert pieces == ([] if len(word) == 1 else expected.ids), word


def test_what_nothing_else_spells_has_no_pieces(minilm: Path) -> None:
    vocabulary = BaseVocabulary(load_tokenizer(minilm))
    assert vocabulary.pieces_without_row(["a"]) == [[]]
    single = [word for word in vocabulary.whole_words if len(word) == 1]
    assert not any(vocabulary.pieces_without_row(single))


def test_bytelevel() -> None:
    vocabulary = BaseVocabulary(bytelevel_tokenizer())
    words = [word for word in vocabulary.whole_words if len(word) > 1]
    assert len(words) > 10
    for word, pieces in zip(words, vocabulary.pieces_without_row(words), strict=True):
        (entry,) = vocabulary.entries([word])
        expected = lacking(vocabulary.tokenizer, entry).encode(entry, add_special_tokens=False)
        assert pieces == expected.ids, word


def test_a_wordpiece_vocabulary_without_its_unknown_token_is_refused(minilm: Path) -> None:
    tokenizer = load_tokenizer(minilm)
    tokenizer.model.unk_token = "[NONE]"
    with pytest.raises(InputError, match=r"lacks .*\[NONE\]"):
        BaseVocabulary(tokenizer)
