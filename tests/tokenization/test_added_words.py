from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.errors import InputError
from greenadapt.store.arrays import Sequences, write_arrays
from greenadapt.tokenization.added_words import AddedWords, new_entries
from greenadapt.tokenization.vocabulary import BaseVocabulary
from greenadapt.tokenization.words import from_byte_characters, to_byte_characters
from tests.conftest import bytelevel_tokenizer, wordpiece_tokenizer
from tests.support.words_of_pieces import addable_words


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_byte_characters_are_the_librarys(text):
    from tokenizers.pre_tokenizers import ByteLevel

    library = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert to_byte_characters(text) == "".join(piece for piece, _ in library)
    assert from_byte_characters(to_byte_characters(text)) == text


def test_whole_words_of_wordpiece_are_pieces_without_marks_or_specials():
    vocabulary = BaseVocabulary(wordpiece_tokenizer())
    assert vocabulary.whole_words["heart"] == vocabulary.pieces(["heart"])[0][0]
    assert {"##chy", "chy", "[CLS]"}.isdisjoint(vocabulary.whole_words)
    assert vocabulary.special_ids == {0, 1, 2, 3, 4}
    assert vocabulary.size == wordpiece_tokenizer().get_vocab_size()


def test_whole_words_of_bytelevel_have_the_marked_row():
    tokenizer = bytelevel_tokenizer()
    vocabulary = BaseVocabulary(tokenizer)
    assert vocabulary.whole_words["heart"] == tokenizer.token_to_id("Ġheart")
    assert "" not in vocabulary.whole_words


def test_addable_words_of_an_uncased_model():
    words = ["tachycardia", "EGFR", "beta-blocker", "[SEP]", "heart", "ébola", "°c", "x" * 101, "日", "a b"]
    vocabulary = BaseVocabulary(wordpiece_tokenizer())
    assert addable_words(words, vocabulary) == ["tachycardia", "°c", "x" * 101, "日"]
    assert addable_words([], vocabulary) == []


def test_addable_words_of_bytelevel():
    # "'s" is two base pieces but only ever stands without a space before it.
    words = ["tachycardia", "heart", "beta-blocker", "<mask>", "'s", "日本", " ", "\t "]
    assert addable_words(words, BaseVocabulary(bytelevel_tokenizer())) == ["tachycardia", "'s", "日本"]


def test_words_that_cannot_be_exported_come_first():
    vocabulary = BaseVocabulary(wordpiece_tokenizer(lowercase=False))
    entries = new_entries(["°c", "tachycardia", "日", "naïve", "isolates"], vocabulary)
    assert entries.surfaces() == ["°c", "日", "tachycardia", "naïve", "isolates"]
    assert entries.exported.tolist() == [False, False, True, True, True]


def test_bytelevel_words_have_two_rows_where_both_forms_are_new():
    vocabulary = BaseVocabulary(bytelevel_tokenizer())
    entries = new_entries(["tachycardia", "'s"], vocabulary)
    assert entries.strings(vocabulary) == ["Ġtachycardia", "tachycardia", "'s"]
    assert entries.word.tolist() == [0, 0, 1]
    assert new_entries(["z"], vocabulary).strings(vocabulary) == ["Ġz"]  # "z" itself is a base piece


def test_greedy_is_refused_for_bytelevel():
    with pytest.raises(InputError, match=r"^--oov greedy is for WordPiece tokenizers, this one is byte-level BPE: use"):
        new_entries(["tachycardia"], BaseVocabulary(bytelevel_tokenizer()), "greedy")


@pytest.mark.parametrize("make", [wordpiece_tokenizer, bytelevel_tokenizer])
def test_written_table_finds_every_entry(make, tmp_path: Path):
    tokenizer = make()
    vocabulary = BaseVocabulary(tokenizer)
    words = ["tachycardia", "isolates", "kinases", "日", "x" * 120, "y" * 120]
    entries = new_entries(words, vocabulary)
    AddedWords.build(entries, vocabulary, 1000, "base").write(tmp_path / "words.safetensors")
    table = AddedWords.open(tmp_path / "words.safetensors")
    assert len(table) == len(entries)
    assert table.all_surfaces() == entries.surfaces()
    for i, (surface, marked) in enumerate(zip(entries.surfaces(), entries.marked.tolist(), strict=True)):
        pieces = vocabulary.pieces([surface], marked=marked)
        if pieces == [[vocabulary.unk_id]]:
            assert table.find_surfaces([surface, surface + "x"]).tolist() == [1000 + i, -1]
        else:
            assert table.find(Sequences.of([*pieces, [5, 5, 5]])).tolist() == [1000 + i, -1]


def test_another_file_is_refused(tmp_path: Path):
    write_arrays(tmp_path / "other.safetensors", {"x": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="is not a table of added words"):
        AddedWords.open(tmp_path / "other.safetensors")
