"""Words of SentencePiece models, whose pre-tokens hold punctuation, on real text."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords, NewEntries, new_entries
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.export import export_tokenizers
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter, load_tokenizer
from tests.support.sentencepiece_models import LAYOUTS, known_words, real_lines, save_sentencepiece
from tests.support.words_of_pieces import addable_words

PIECES = [
    *("<unk>", "▁", "▁(", "▁ta", "ta", "chy", "cardia", "),", ",", "▁日", "日本", "では", "▁the", "s", "x", "(", ".a"),
    *("a", "-"),
]


def tiny() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0 - i / 10) for i, piece in enumerate(PIECES)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the (tachycardia), tachycardias", ["the", "(", "tachycardia", "),", "tachycardias"]),
        ("日本では", ["日本", "では"]),
        ("xéx éx “x” 😀", ["xéx", "éx", "“", "x", "”", "😀"]),
    ],
)
def test_words_end_at_punctuation_where_pieces_do(text: str, words: list[str]) -> None:
    assert WordSplitter(tiny()).split(text) == words


def test_which_words_can_be_added() -> None:
    words = ["tachycardia", "the", "日本では", "tachy-x", "x", "ta", "éx", "chy", "cardiachy"]
    vocabulary = BaseVocabulary(tiny())
    assert addable_words(words, vocabulary) == ["tachycardia", "cardiachy"]
    row = PIECES.index
    assert {"the", "ta", "chy", "x", "日本", ",", "("} <= set(vocabulary.whole_words)
    assert vocabulary.whole_words["ta"] == row("▁ta")
    assert vocabulary.whole_words["("] == row("(")
    assert vocabulary.whole_words["x"] == row("x")  # with a mark alone before it


@dataclass(frozen=True)
class Expanded:
    """A tokenizer with added words, exported."""

    base: Tokenizer
    dual: DualTokenizer
    entries: NewEntries
    plain: Any
    folder: Path

    @property
    def ids(self) -> dict[str, int]:
        return {word: self.dual.added.first_id + i for i, word in enumerate(self.entries.surfaces())}


@pytest.fixture(scope="module", params=[*((family, "Unigram") for family in LAYOUTS), ("XLMRoberta", "BPE")])
def expanded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Expanded:
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("expanded")
    save_sentencepiece(source, *request.param)
    tokenizer = load_tokenizer(source)
    vocabulary = BaseVocabulary(tokenizer)
    counts = Counter(word for line in real_lines() for word in WordSplitter(tokenizer).split(line))
    frequent = [word for word, count in counts.most_common() if count > 2]
    words = addable_words(frequent, vocabulary)
    entries = new_entries(words, vocabulary)
    first_id = vocabulary.size + 3  # rows of the model that no piece has
    AddedWords.build(entries, vocabulary, first_id, "base").write(folder / WORDS_FILE)
    n_hidden = export_tokenizers(vocabulary, source, folder, entries, first_id, "base")
    assert n_hidden == sum(tokenizer.token_to_id(word) is not None for word in words)
    plain = transformers.AutoTokenizer.from_pretrained(folder)
    return Expanded(tokenizer, DualTokenizer.load(folder), entries, plain, folder)


def text_of(tokenizer: Tokenizer, pieces: list[int]) -> str:
    return "".join(str(tokenizer.id_to_token(piece)) for piece in pieces).replace("▁", "")


@pytest.mark.slow
def test_plain_transformers_finds_the_same_words(expanded: Expanded, tmp_path: Path) -> None:
    hidden = {expanded.ids[word] for word in expanded.entries.surfaces() if expanded.base.token_to_id(word) is not None}
    expanded.plain.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    n = 0
    for text in real_lines():
        ids = expanded.dual.encode(text).expanded.ids.tolist()
        if hidden.isdisjoint(ids):
            assert expanded.plain(text, add_special_tokens=False)["input_ids"] == ids
            assert again(text, add_special_tokens=False)["input_ids"] == ids
            n += 1
    assert n > 150


def test_plain_transformers_frames_other_text_as_before(expanded: Expanded) -> None:
    mask = expanded.plain.mask_token
    a, b = known_words(expanded.base)
    for text in (f"{a} {mask}, {b} ({mask}) {a}", f"{mask} {a}", f"{a} {mask}.", f" {a}", f"({a})", a):
        assert expanded.plain(text)["input_ids"] == expanded.base.encode(text).ids
        assert expanded.plain(text, b)["input_ids"] == expanded.base.encode(text, b).ids
    assert len(expanded.plain) == expanded.dual.added.first_id + len(expanded.entries)


def test_without_its_row_a_word_has_other_pieces(expanded: Expanded) -> None:
    vocabulary = BaseVocabulary(expanded.base)
    words = vocabulary.whole_words
    spellings = vocabulary.pieces_without_row(list(words))
    assert sum(map(bool, spellings)) > len(words) // 2
    for (word, row), pieces in zip(words.items(), spellings, strict=True):
        assert row not in pieces
        assert not pieces or text_of(expanded.base, pieces) == word
