from pathlib import Path

import pytest

from greenadapt.stages.demo import Fertility, fertility
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords, new_entries
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.export import export_tokenizers
from greenadapt.tokenization.vocabulary import BaseVocabulary
from tests.conftest import save_tokenizer, wordpiece_tokenizer


def test_pieces_are_counted_over_the_same_words(tmp_path: Path) -> None:
    tokenizer = wordpiece_tokenizer()
    save_tokenizer(tokenizer, tmp_path / "base", "BertTokenizer")
    vocabulary = BaseVocabulary(tokenizer)
    entries = new_entries(["tachycardia"], vocabulary)
    export_tokenizers(vocabulary, tmp_path / "base", tmp_path / "new", entries, vocabulary.size, "base")
    AddedWords.build(entries, vocabulary, vocabulary.size, "base").write(tmp_path / "new" / WORDS_FILE)
    counted = fertility(DualTokenizer.load(tmp_path / "new"), ["the tachycardia", "", "heart rate ."])
    # ta ##chy ##card ##ia
    assert counted == Fertility(words=5, base_pieces=8, expanded_pieces=5, whole_words=1)
    assert (counted.before, counted.after) == (pytest.approx(1.6), 1.0)
