"""Words in languages that write them in other ways than English."""

import unicodedata
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords, new_entries
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.export import export_tokenizers
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter, load_tokenizer
from tests.conftest import save_tokenizer
from tests.support.languages import LINES, STYLES, language_tokenizer
from tests.support.words_of_pieces import addable_words, extents

FORMS = ("NFC", "NFD")
WORDS = sorted({unicodedata.normalize(form, word) for line in LINES for word in line.split() for form in FORMS})
CHARACTERS = sorted({character for line in LINES for form in FORMS for character in unicodedata.normalize(form, line)})
BETWEEN = ["", " ", "  ", "\n", ".", "，", "、", "।", "؟", "-", "'", "\u200c", "\u200d", "\u0301", "\u0307"]
PIECES = st.sampled_from(WORDS) | st.sampled_from(CHARACTERS) | st.sampled_from(BETWEEN) | st.sampled_from(["1", "x"])
TEXTS = st.lists(st.sampled_from(LINES) | PIECES, max_size=12).flatmap(
    lambda parts: st.sampled_from([" ".join(parts), "".join(parts), " ".join(parts).upper(), " ".join(parts).lower()])
)
PATIENT = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@dataclass(frozen=True, repr=False)
class Expanded:
    """A tokenizer with all words of the languages that it can have, and its export."""

    base: Tokenizer
    splitter: WordSplitter
    dual: DualTokenizer
    exported: Tokenizer
    words: list[str]

    @property
    def has_row_of_each(self) -> bool:
        """Whether a word's row does not depend on the space before it."""
        vocabulary = BaseVocabulary(self.base)
        return vocabulary.kind == "wordpiece" or vocabulary.at_spaces


@pytest.fixture(scope="module", params=STYLES)
def expanded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Expanded:
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("expanded")
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad", "mask")}
    save_tokenizer(language_tokenizer(request.param), source, "PreTrainedTokenizerFast", **names)
    base = load_tokenizer(source)
    splitter, vocabulary = WordSplitter(base), BaseVocabulary(base)
    words_of_text = dict.fromkeys(word for text in [*LINES, *WORDS] for word in splitter.split(text))
    words = addable_words([*words_of_text], vocabulary)
    entries = new_entries(words, vocabulary)
    AddedWords.build(entries, vocabulary, vocabulary.size, "base").write(folder / WORDS_FILE)
    export_tokenizers(vocabulary, source, folder, entries, vocabulary.size, "base")
    return Expanded(base, splitter, DualTokenizer.load(folder), load_tokenizer(folder), words)


@given(text=TEXTS)
@PATIENT
def test_both_views_have_the_same_words_of_the_text(expanded: Expanded, text: str) -> None:
    encoding, first = expanded.dual.encode(text), expanded.dual.added.first_id
    assert encoding.base.ids.tolist() == expanded.base.encode(text, add_special_tokens=False).ids
    places = extents(encoding.base)
    assert places == extents(encoding.expanded)
    assert all(0 <= begin <= end <= len(text) for begin, end in places)
    assert all(before <= after for (before, _), (after, _) in pairwise(places))
    for piece, (begin, end) in zip(encoding.expanded.ids.tolist(), encoding.expanded.spans.tolist(), strict=True):
        if piece >= first:
            surface = expanded.dual.added.all_surfaces()[piece - first]
            assert expanded.splitter.split(text[begin:end]) == [surface]
    if expanded.splitter.kind == "wordpiece":
        words = [word for begin, end in places for word in expanded.splitter.split(text[begin:end])]
        assert words == expanded.splitter.split(text)


@given(text=TEXTS)
@PATIENT
def test_words_of_a_corpus_are_those_that_are_found(expanded: Expanded, text: str) -> None:
    encoding, first = expanded.dual.encode(text), expanded.dual.added.first_id
    added = expanded.dual.added.all_surfaces()
    new_words = [added[i - first] for i in encoding.expanded.ids.tolist() if i >= first]
    words = [word for word in expanded.splitter.split(text) if word in expanded.words]
    if expanded.has_row_of_each:
        assert new_words == words
    remaining = iter(words)
    assert all(word in remaining for word in new_words)


@pytest.mark.parametrize("style", ["wordpiece", "unigram", "bpe-whole-text"])
@pytest.mark.parametrize("form", FORMS)
def test_marks_do_not_end_words(style: str, form: str) -> None:
    texts = ("हिन्दी की किताबें उन्हें", "يُولَدُ جَمِيعُ كـــتاب", "İzmir ılık eşit", "Straße 모든 권리에 đẳng quyền")
    words = unicodedata.normalize(form, " ".join(texts)).split(" ")
    splitter = WordSplitter(language_tokenizer(style))
    assert splitter.split(" ".join(words)) == [splitter.normalize(word).strip("▁") for word in words]


@pytest.mark.parametrize(
    ("style", "text", "words"),
    [
        ("unigram", "به دنیا می\u200cآیند", ["به", "دنیا", "می\u200cآیند"]),
        ("bpe-whole-text", "دنیا می\u200cآیند.", ["دنیا", "می\u200cآیند", "."]),
        ("wordpiece-uncased", "İSTANBUL ILIK ISPARTA Straße", ["istanbul", "ilik", "isparta", "straße"]),
        ("unigram-uncased", "İNCİ ILIK", ["i\u0307nci\u0307", "ilik"]),
        ("unigram", "平等である。", ["平等", "であ", "る", "。"]),
        ("wordpiece", "平等 สิทธิ.", ["平", "等", "สิทธิ", "."]),
        ("bytelevel", "उन्हें 人人", ["उन", "्", "ह", "ें", "人人"]),  # its own pre-tokenizer parts the signs
    ],
)
def test_words_of_other_scripts(style: str, text: str, words: list[str]) -> None:
    assert WordSplitter(language_tokenizer(style)).split(text) == words
