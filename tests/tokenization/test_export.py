"""The exported tokenizer under plain transformers, against DualTokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords, new_entries
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.export import export_tokenizers
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from tests.conftest import SPECIALS_OF_ROBERTA, bytelevel_tokenizer, save_tokenizer, wordpiece_tokenizer

WORDS = ["tachycardia", "kinases", "isolates", "covid", "virus9", "naïve", "x" * 110, "日本"]
TEXT = (
    "The tachycardia, tachycardias (isolates) of COVID-19 isolatesx kinases. Virus9 naïve patient-tachycardia "
    f"[MASK] <mask> {'x' * 110} 日本 x日本 preisolates isolates2 heart\n tachycardia's"
)
NEW_FREE = "The heart rate of patients: virus was isolated from [SEP] <mask> dtype  array. COVID tachycardias"


def make_folder(kind: str, folder: Path) -> Path:
    if kind == "bytelevel":
        save_tokenizer(bytelevel_tokenizer(), folder, "RobertaTokenizer", model_max_length=512, **SPECIALS_OF_ROBERTA)
    else:
        lowercase = kind == "uncased"
        save_tokenizer(
            wordpiece_tokenizer(lowercase), folder, "BertTokenizer", do_lower_case=lowercase, model_max_length=512
        )
        (folder / "vocab.txt").write_text("a vocabulary that must not be read")
    return folder


def expand(source: Path, out: Path, words: list[str], *, padding_rows: int = 0, oov: Any = "base") -> int:
    vocabulary = BaseVocabulary(load_tokenizer(source))
    entries = new_entries(words, vocabulary, oov)
    first_id = vocabulary.size + padding_rows
    n_hidden = export_tokenizers(vocabulary, source, out, entries, first_id, oov)
    AddedWords.build(entries, vocabulary, first_id, oov).write(out / WORDS_FILE)
    return n_hidden


def words_for(kind: str) -> list[str]:
    # The uncased model takes the accent off, WordPiece sets ideographs apart, byte-level BPE digits.
    unfit = {"uncased": {"naïve", "日本"}, "cased": {"日本"}, "bytelevel": {"virus9"}}
    return [word for word in WORDS if word not in unfit[kind]]


@pytest.fixture(params=["uncased", "cased", "bytelevel"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_plain_transformers_follow_the_word_rule(kind: str, tmp_path: Path):
    from transformers import AutoTokenizer

    source, out = make_folder(kind, tmp_path / "source"), tmp_path / "out"
    n_hidden = expand(source, out, words_for(kind), padding_rows=3)
    assert n_hidden == 0
    dual, base = DualTokenizer.load(out), AutoTokenizer.from_pretrained(source)
    exported = AutoTokenizer.from_pretrained(out)
    for text in (TEXT, NEW_FREE, ""):
        encoding = dual.encode(text)
        assert ids(exported, text) == encoding.expanded.ids.tolist()
        assert ids(base, text) == encoding.base.ids.tolist()
        assert ids(AutoTokenizer.from_pretrained(out / "base_tokenizer"), text) == encoding.base.ids.tolist()
    assert exported("heart", "rate") == base("heart", "rate")
    assert exported.special_tokens_map == base.special_tokens_map
    assert exported.model_max_length == 512


def test_checks_6_to_8_of_the_word_rule(kind: str, tmp_path: Path):
    """No new word: the base pieces. tachycardia: one piece; tachycardias: its base pieces. COVID-19: never one."""
    from transformers import AutoTokenizer

    source, out = make_folder(kind, tmp_path / "source"), tmp_path / "out"
    expand(source, out, ["tachycardia", "covid"])
    dual, exported, base = DualTokenizer.load(out), AutoTokenizer.from_pretrained(out), load_tokenizer(source)
    views = (lambda text: dual.encode(text).expanded.ids.tolist(), lambda text: ids(exported, text))
    for view in views:
        for text in ("tachycardias", "pretachycardia", "the heart of tachycardias", "heart9 covids"):
            assert view(text) == base.encode(text, add_special_tokens=False).ids
        for text in ("tachycardia", " tachycardia"):
            assert len(view(text)) == 1
        for text in ("COVID-19", "covid-19", "tachycardia-heart", "the COVID-19"):
            assert len(view(text)) >= 3


def test_greedy_puts_words_at_the_start_of_longer_ones(tmp_path: Path):
    from transformers import AutoTokenizer

    source, out = make_folder("uncased", tmp_path / "source"), tmp_path / "out"
    expand(source, out, ["tachycardia", "covid"], padding_rows=2, oov="greedy")
    dual, exported = DualTokenizer.load(out), AutoTokenizer.from_pretrained(out)
    word, s = dual.added.first_id, dual.base.token_to_id("##s")
    for text in ("tachycardias", "Tachycardias, tachycardia covid-19 \u200b"):
        assert dual.encode(text).expanded.ids.tolist() == ids(exported, text)
        assert dual.encode(text).expanded.words[-1] == dual.encode(text).base.words[-1]
    assert dual.encode("tachycardias").expanded.ids.tolist() == [word, s]
    assert dual.encode("tachycardias").base.ids.tolist() == dual.base.encode("tachycardias").ids
    pieces = dual.encode(["tachycardias", "\u200b", "x"]).expanded
    assert pieces.input_words is not None
    assert pieces.input_words.tolist() == [0, 0, 1, 2]


def test_where_the_export_differs_and_why(tmp_path: Path):
    r"""An added token ends where ``\w`` ends, a word where the model's pre-tokenizer says: other characters decide."""
    source, out = make_folder("uncased", tmp_path / "source"), tmp_path / "out"
    n_hidden = expand(source, out, ["kinases", "37°", "日"])
    assert n_hidden == 2
    dual, exported = DualTokenizer.load(out), Tokenizer.from_file(str(out / "tokenizer.json"))

    def lengths(text: str) -> tuple[int, int]:
        return len(dual.encode(text).expanded.ids), len(exported.encode(text, add_special_tokens=False).ids)

    base_pieces = len(dual.base.encode("kinases").ids)
    # "_" is \w and also punctuation: a word of its own to the model, part of a longer one to the added token.
    assert lengths("kinases_x") == (3, base_pieces + 2)
    # "°", "±", "´", "−", "²" are neither \w nor punctuation to BERT: within a word there, its end here.
    assert lengths("kinases")[0] == lengths("kinases")[1] == 1
    for sign in "°±´−²":
        assert dual.encode(f"kinases{sign}").expanded.ids.tolist() == [dual.special.unk]
        ids_of_export = exported.encode(f"kinases{sign}", add_special_tokens=False).ids
        assert ids_of_export == [dual.added.first_id + 2, dual.special.unk]
    # Words of such characters, and ideographs, have a row but no added token.
    assert dual.encode("37° 日").expanded.ids.tolist() == [dual.added.first_id, dual.added.first_id + 1]
    assert dual.added.first_id not in exported.encode("37° 日", add_special_tokens=False).ids


def test_a_token_that_a_user_adds_gets_a_row_of_its_own(kind: str, tmp_path: Path):
    """``len(tokenizer)`` is the number of rows, hidden words included, so resizing takes none away."""
    from transformers import AutoTokenizer

    source, out = make_folder(kind, tmp_path / "source"), tmp_path / "out"
    words = ["kinases", "naïvete" if kind == "bytelevel" else "37°", "日", "isolates"]
    n_hidden = expand(source, out, words, padding_rows=3)
    assert n_hidden == (0 if kind == "bytelevel" else 2)
    dual = DualTokenizer.load(out)
    n_rows = dual.added.first_id + len(dual.added)
    exported = AutoTokenizer.from_pretrained(out)
    assert len(exported) == n_rows
    assert (exported.vocab_size == n_rows) == (kind == "bytelevel")
    text = f"{TEXT} 37° unused row {n_rows - 5} [unused_row_{n_rows - 5}] <new>"
    expected = ids(exported, text)
    exported.add_tokens(["<new>"])
    assert exported.convert_tokens_to_ids("<new>") == n_rows
    exported.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert len(again) == n_rows + 1
    assert ids(again, text) == ids(exported, text) == [*ids(exported, text.removesuffix("<new>")), n_rows]
    assert ids(AutoTokenizer.from_pretrained(out), text) == expected


def test_json_is_what_the_library_would_write(tmp_path: Path):
    source, out = make_folder("uncased", tmp_path / "source"), tmp_path / "out"
    expand(source, out, ["tachycardia", "kinases"])
    library = load_tokenizer(source)
    library.add_tokens([AddedToken(word, single_word=True, normalized=True) for word in ("tachycardia", "kinases")])
    assert json.loads((out / "tokenizer.json").read_text()) == json.loads(library.to_str())


def test_base_tokens_beyond_the_vocabulary_keep_their_ids(kind: str, tmp_path: Path):
    from transformers import AutoTokenizer

    source, out = make_folder(kind, tmp_path / "source"), tmp_path / "out"
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.add_special_tokens(["<entity>"])
    tokenizer.add_tokens(["zork"])
    tokenizer.save(str(source / "tokenizer.json"))
    expand(source, out, ["tachycardia"], padding_rows=2)
    text = "<entity> zork tachycardia heart"
    expected = DualTokenizer.load(out).encode(text).expanded.ids.tolist()
    assert tokenizer.token_to_id("<entity>") in expected
    assert tokenizer.token_to_id("zork") in expected
    assert ids(AutoTokenizer.from_pretrained(out), text) == expected


def test_base_files_are_copied_but_for_truncation_and_padding(tmp_path: Path):
    source, out = make_folder("uncased", tmp_path / "source"), tmp_path / "out"
    expand(source, out, ["tachycardia"])
    original, copy = (json.loads((f / "tokenizer.json").read_text()) for f in (source, out / "base_tokenizer"))
    assert original["truncation"]["max_length"] == original["padding"]["strategy"]["Fixed"] == 128
    assert copy == {**original, "truncation": None, "padding": None}
    for name in ("tokenizer_config.json", "vocab.txt"):
        assert (out / "base_tokenizer" / name).read_bytes() == (source / name).read_bytes()
    assert len(Tokenizer.from_file(str(out / "tokenizer.json")).encode("heart " * 1000).ids) == 1002


def test_special_tokens_that_only_the_tokenizer_class_knows(tmp_path: Path):
    from transformers import AutoTokenizer

    source, out = tmp_path / "source", tmp_path / "out"
    save_tokenizer(bytelevel_tokenizer(), source, "RobertaTokenizer")  # as the hub's roberta-base: no names in it
    expand(source, out, ["tachycardia"])
    base, exported = AutoTokenizer.from_pretrained(source), AutoTokenizer.from_pretrained(out)
    assert exported.special_tokens_map == base.special_tokens_map
    assert exported("heart") == base("heart")


ORDINARY = ["tachycardia", "isolates", "Kinases", "heart", *"sx9\u200bé -(.'", "e\u0301"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["uncased", "cased", "bytelevel"])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_export_is_the_word_rule_between_ordinary_characters(kind: str, data: st.DataObject, exported: Any):
    r"""WordPiece: where every character is ``\w``, a space, or ASCII punctuation but ``_``; byte-level BPE: always."""
    odd = st.characters(exclude_categories=["Cs"]) if kind == "bytelevel" else st.sampled_from(ORDINARY)
    text = "".join(data.draw(st.lists(st.sampled_from(ORDINARY) | odd, max_size=12)))
    dual, plain = exported[kind]
    assert plain.encode(text, add_special_tokens=False).ids == dual.encode(text).expanded.ids.tolist()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[DualTokenizer, Tokenizer]]:
    tokenizers = {}
    for kind in ("uncased", "cased", "bytelevel"):
        folder = tmp_path_factory.mktemp(kind)
        expand(make_folder(kind, folder / "source"), folder / "out", ["tachycardia", "isolates", "kinases"])
        tokenizers[kind] = (DualTokenizer.load(folder / "out"), load_tokenizer(folder / "out"))
    return tokenizers
