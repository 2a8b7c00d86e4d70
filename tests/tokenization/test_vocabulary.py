"""What words would be cut into without their rows, against tokenizers that lack these."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from greenadapt.checkpoints.source import find_model
from greenadapt.errors import InputError, MissingError
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter, load_tokenizer
from tests.conftest import bytelevel_tokenizer, wordpiece_tokenizer


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
    words = ["insulin", "a", "女"]
    assert {*words} <= {*vocabulary.whole_words}
    for word, pieces in zip(words, vocabulary.pieces_without_row(words), strict=True):
        expected = lacking(vocabulary.tokenizer, word).encode(word, add_special_tokens=False)
        assert pieces == ([] if len(word) == 1 else expected.ids), word


def test_bytelevel() -> None:
    vocabulary = BaseVocabulary(bytelevel_tokenizer())
    words = [word for word in vocabulary.whole_words if len(word) > 1]
    assert len(words) > 10
    for word, pieces in zip(words, vocabulary.pieces_without_row(words), strict=True):
        (entry,) = vocabulary.entries([word])
        expected = lacking(vocabulary.tokenizer, entry).encode(entry, add_special_tokens=False)
        assert pieces == expected.ids, word


GPT4_LIKE = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ODD = [
    *("the", "Heart-Rate", "don't", "'s", "'ll", "'LL", "''s", "x's", "_a_b", "3.14", "1e-5", "[SEP]", "<s>", "[MASK]"),
    *("ÉGFR", "e\u0301gfr", "\u0301", "İstanbul", "ΣΑΣ", "ǅ", "ß", "ﬁ", "½", "°", "´", "±", "汉字", "한국", "한"),
    *("👩\u200d🔬", "\U0001f1e9\U0001f1ea", "ไทย", "\u2028", "\u200b", "\u3000", "\ufeff", "\ufffd", "\x85", "\xa0"),
    *("\xad", "\t", "\r", "\x00", "\x0b", "\x0c", "\x1c", "\x1f", "\x7f"),
]
TEXTS = st.lists(st.sampled_from(ODD) | st.sampled_from([" ", " ", "  "]) | st.text(max_size=4)).map("".join)


def with_steps(tokenizer: Tokenizer, normalizer: object = None, pre_tokenizer: object = None) -> Tokenizer:
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


CHUNKWISE = {
    "minilm": load_tokenizer(find_model("minilm").folder),
    "uncased": wordpiece_tokenizer(),
    "cased": wordpiece_tokenizer(lowercase=False),
    "several": with_steps(wordpiece_tokenizer(), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
    "bytelevel": bytelevel_tokenizer(),
    "bytelevel, NFC": with_steps(bytelevel_tokenizer(), normalizers.NFC()),
    "bytelevel, prefixed": with_steps(bytelevel_tokenizer(), None, pre_tokenizers.ByteLevel(add_prefix_space=True)),
}
WHOLE = {
    "replaced": with_steps(wordpiece_tokenizer(), normalizers.Replace("  ", "x")),
    "whitespace": with_steps(wordpiece_tokenizer(), None, pre_tokenizers.Whitespace()),
    "gpt4-like": with_steps(
        bytelevel_tokenizer(),
        None,
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(GPT4_LIKE), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        ),
    ),
}


def reference(tokenizer: Tokenizer, text: str) -> list[str]:
    """Pre-tokens of the normalised text, decoded by the library, cut at ASCII whitespace, less whitespace."""
    normalised = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    tokens = [token for token, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalised)]
    if isinstance(tokenizer.model, models.BPE):
        tokens = [decoders.ByteLevel().decode([token]) for token in tokens]
    words = []
    for token in tokens:
        for character in "\t\n\r":
            token = token.replace(character, " ")
        words += [word for word in token.split(" ") if word.strip()]
    return words


@pytest.mark.parametrize("name", [*CHUNKWISE, *WHOLE])
@settings(deadline=None, max_examples=20)
@given(text=TEXTS)
def test_words_are_the_tokenizers_own(name: str, text: str) -> None:
    tokenizer = (CHUNKWISE | WHOLE)[name]
    assert WordSplitter(tokenizer).split(text) == reference(tokenizer, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHUNKWISE)
@settings(deadline=None, max_examples=20)
@given(text=TEXTS)
def test_chunk_by_chunk_is_the_same_where_it_is_claimed(name: str, text: str) -> None:
    splitter = WordSplitter(CHUNKWISE[name])
    assert splitter.chunkwise
    first, *chunks = text.split(" ")
    words = splitter.split(first) + [word for chunk in chunks for word in splitter.split_chunk(chunk)]
    assert words == reference(CHUNKWISE[name], text)


@pytest.mark.parametrize("name", WHOLE)
def test_chunk_by_chunk_is_not_claimed_where_unknown(name: str) -> None:
    assert not WordSplitter(WHOLE[name]).chunkwise


def test_other_tokenizers_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="WordLevel"):
        WordSplitter(with_steps(Tokenizer(models.WordLevel()), None, pre_tokenizers.Whitespace()))
    Tokenizer(models.BPE()).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=rf"{tmp_path}.*: BPE tokenizers with"):
        WordSplitter.load(tmp_path)


def test_truncation_and_padding_are_off(minilm: Path) -> None:
    text = "tachycardia " * 1000
    shipped = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    assert len(shipped.encode(text)) == 128
    tokenizer = load_tokenizer(minilm)
    assert len(tokenizer.encode(text)) == 1000 * len(tokenizer.encode("tachycardia", add_special_tokens=False)) + 2
    assert len(tokenizer.encode("heart")) == 3
    assert WordSplitter(tokenizer).split(text) == ["tachycardia"] * 1000


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
