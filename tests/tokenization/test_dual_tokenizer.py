import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from greenadapt.errors import MissingError
from greenadapt.tokenization.added_words import AddedWords, new_entries
from greenadapt.tokenization.dual_tokenizer import DualEncoding, DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.tokenization.words import from_byte_characters
from tests.conftest import bytelevel_tokenizer, save_tokenizer, wordpiece_tokenizer
from tests.support.words_of_pieces import addable_words, extents, grouped

# What tokenizers disagree about: control characters, marks, zero width, ideographs, emoji, odd spaces, \w and not \w.
NASTY = [
    *"\x00\x07\x85\xa0\xad\u0301\u0327\u0345\u200b\u200d\u2028\u3000\ufeff\ufffd\ue000",
    *"_°´±²½Ⅷ'’-.,[]#\t\n \r",
    *"日本ก็한각가ªİıßẞſﬁŉΩΣσςÉéＡａ１٣९",
    *("e\u0301", "\u1100\u1161", "\u302e", "\U00016ff0", "\U0001d165\U0001d16d", "≠", "\u037e", "##", " ", "  "),
    *("\U0001f600", "\U0001f469\u200d\U0001f52c", "\U00020000"),
    *("tachycardia", "Tachycardias", "heart", "HEART", "isolates", "s", "in", "ta", "x1", "don't", "12345"),
    *("[SEP]", "[sep]", "[UNK]", "<s>", "</s>", "<mask>", "##ia", "x" * 101, "q" * 130),
]
TEXTS = st.lists(st.sampled_from(NASTY) | st.characters(exclude_categories=["Cs"]), max_size=14).map("".join)
PATIENT = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Model:
    """A base tokenizer's folder, and the slow rule that DualTokenizer must follow."""

    folder: Path
    tokenizer: Tokenizer

    @cached_property
    def vocabulary(self) -> BaseVocabulary:
        return BaseVocabulary(self.tokenizer)

    def pre_tokens(self, text: str) -> list[str]:
        """What the base tokenizer cuts into pieces one by one; a literal special token is one of its own."""
        special = [re.escape(token.content) for token in self.tokenizer.get_added_tokens_decoder().values()]
        normalize = self.tokenizer.normalizer.normalize_str if self.tokenizer.normalizer else str
        tokens = []
        for part in re.split(f"({'|'.join(special)})", text):
            if self._is_special(part):
                tokens.append(part)
            elif part:
                tokens += [token for token, _ in self.tokenizer.pre_tokenizer.pre_tokenize_str(normalize(part))]
        return tokens

    def _is_special(self, text: str) -> bool:
        return any(token.content == text for token in self.tokenizer.get_added_tokens_decoder().values())

    def words(self, *texts: str) -> list[str]:
        """The words of ``texts`` that can be added."""
        tokens = dict.fromkeys(token for text in texts for token in self.pre_tokens(text))
        if self.vocabulary.kind == "bytelevel":
            tokens = dict.fromkeys(from_byte_characters(token.removeprefix("Ġ")) for token in tokens)
        return addable_words([word for word in tokens if word], self.vocabulary)

    def rule(self, text: str, new_ids: dict[str, int]) -> tuple[list[list[int]], list[list[int]]]:
        """The pieces of each word of ``text``, in the base view and in the expanded one."""
        base, expanded = [], []
        for token in self.pre_tokens(text):
            if self._is_special(token):
                pieces = [self.tokenizer.token_to_id(token)]
            else:
                pieces = [piece.id for piece in self.tokenizer.model.tokenize(token)]
            base.append(pieces)
            expanded.append([new_ids[token]] if token in new_ids else pieces)
        return base, expanded

    def dual(self, words: list[str]) -> tuple[DualTokenizer, dict[str, int]]:
        vocabulary = self.vocabulary
        entries = new_entries(words, vocabulary)
        added = AddedWords.build(entries, vocabulary, vocabulary.size, "base")
        new_ids = {string: vocabulary.size + i for i, string in enumerate(entries.strings(vocabulary))}
        return DualTokenizer(self.folder, added), new_ids


@pytest.fixture(scope="module", params=["minilm", "uncased", "cased", "bytelevel"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    if request.param == "minilm":
        folder = request.getfixturevalue("minilm")
    else:
        folder = tmp_path_factory.mktemp(request.param)
        if request.param == "bytelevel":
            save_tokenizer(bytelevel_tokenizer(), folder, "RobertaTokenizer")
        else:
            save_tokenizer(wordpiece_tokenizer(request.param == "uncased"), folder, "BertTokenizer")
    return Model(folder, load_tokenizer(folder))


@pytest.fixture(scope="module")
def dual(model: Model) -> DualTokenizer:
    """With every nasty word that can be added."""
    return model.dual(model.words(*NASTY))[0]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("\u0301\u302e", "\u302e"),
        ("\u302e\x00\u0327", "\u302e"),
        ("\u0301\U0001d165\U0001d16d", "\U0001d165\U0001d16d"),
    ],
)
def test_a_word_of_marks_that_the_normalizer_puts_into_another_order(minilm: Path, text: str, word: str) -> None:
    """Found by the test below: the span that the tokenizer tells is that of a mark that it drops."""
    model = Model(minilm, load_tokenizer(minilm))
    assert model.words(text) == [word]
    dual, new_ids = model.dual([word])
    assert grouped(dual.encode(text).expanded) == [[new_ids[word]]] == model.rule(text, new_ids)[1]


@pytest.mark.slow
@PATIENT
@given(text=TEXTS, data=st.data())
def test_dual_tokenizer_is_the_word_rule(model: Model, text: str, data: st.DataObject):
    candidates = model.words(text, "tachycardia qqqq")
    dual, new_ids = model.dual([word for word in candidates if data.draw(st.booleans())])
    encoding = dual.encode(text)
    base, expanded = model.rule(text, new_ids)
    assert (grouped(encoding.base), grouped(encoding.expanded)) == (base, expanded)
    assert encoding.n_words == len(base)
    for view in (encoding.base, encoding.expanded):
        assert view.words.tolist() == [i for i, pieces in enumerate(grouped(view)) for _ in pieces]
        begins, ends = view.spans.T
        assert (begins <= ends).all()
        assert (np.diff(begins) >= 0).all()
        assert ((begins >= 0) & (ends <= len(text))).all()
    assert extents(encoding.base) == extents(encoding.expanded)


@PATIENT
@given(words=st.lists(TEXTS, max_size=6))
def test_every_given_word_has_pieces_in_both_views(dual: DualTokenizer, words: list[str]):
    encoding = dual.encode(words)
    joined = dual.encode(" ".join(words))
    for view, plain in ((encoding.base, joined.base), (encoding.expanded, joined.expanded)):
        assert view.input_words is not None
        assert sorted(set(view.input_words.tolist())) == list(range(len(words)))
        assert (np.diff(view.input_words) >= 0).all()
        extra = Counter(view.ids.tolist()) - Counter(plain.ids.tolist())
        assert set(extra) <= {dual.special.unk}
        remaining = iter(view.ids.tolist())
        assert all(piece in remaining for piece in plain.ids.tolist())  # in order, nothing lost
    assert encoding.base.words[-1:].tolist() == encoding.expanded.words[-1:].tolist()
    assert extents(encoding.base) == extents(encoding.expanded)


def equal(first: DualEncoding, second: DualEncoding) -> None:
    for a, b in ((first.base, second.base), (first.expanded, second.expanded)):
        for name in ("ids", "words", "spans", "input_words"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


LONG = st.lists(
    TEXTS | st.sampled_from(["heart", "a", "7 x", "in s  s", "tachycardia", "Σς ﬁ", "сердце", "नमस्ते a"]), max_size=12
).map(" ".join)


@pytest.mark.slow
@settings(PATIENT, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(texts=st.lists(LONG | LONG.map(str.split), max_size=4), at_once=st.integers(1, 30))
def test_a_text_in_parts_has_the_same_pieces(
    dual: DualTokenizer, monkeypatch: pytest.MonkeyPatch, texts: list[str | list[str]], at_once: int
):
    whole = dual.encode_batch(texts)
    with monkeypatch.context() as patch:
        patch.setattr("greenadapt.tokenization.dual_tokenizer._AT_ONCE", at_once)
        for encodings in zip(dual.encode_batch(texts), whole, strict=True):
            equal(*encodings)


@pytest.mark.parametrize("options", [{}, {"lstrip": True, "rstrip": True}])
def test_an_added_token_is_not_cut(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
):
    tokenizer = Tokenizer.from_str(model.tokenizer.to_str())
    content = "zz" if options else "zz yy"
    tokenizer.add_tokens([AddedToken(content, normalized=False, **options)])
    save_tokenizer(tokenizer, tmp_path / "tokens", "BertTokenizer")
    dual = DualTokenizer(tmp_path / "tokens", AddedWords.empty(tokenizer.get_vocab_size()))
    text = f"a heart {content} heart {content} heart x" * 3
    whole = dual.encode(text)
    assert tokenizer.token_to_id(content) in whole.base.ids
    for at_once in (1, 5, 17):
        with monkeypatch.context() as patch:
            patch.setattr("greenadapt.tokenization.dual_tokenizer._AT_ONCE", at_once)
            equal(dual.encode(text), whole)


def test_given_words_map_by_characters(dual: DualTokenizer):
    words = ["beta-blocker", "tachycardia,", "heart"]
    encoding = dual.encode(words)
    text = " ".join(words)
    for view in (encoding.base, encoding.expanded):
        for i, word in enumerate(words):
            spans = view.spans[view.input_words == i]
            assert text[spans[0, 0] : spans[-1, 1]] == word
    assert len(encoding.expanded.ids) < len(encoding.base.ids)


def test_empty_texts(dual: DualTokenizer):
    assert [encoding.n_words for encoding in dual.encode_batch(["", [], "heart"])] == [0, 0, 1]
    assert dual.encode_batch([]) == []


def test_another_folder_is_refused(tmp_path: Path):
    with pytest.raises(
        MissingError, match=r"is not an expanded model: it has no words.safetensors: create one with expand"
    ):
        DualTokenizer.load(tmp_path)
