"""Texts and pairs as inputs, against transformers' own tokenization and truncation."""

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.architectures import ARCHITECTURES
from greenadapt.storage.arrays import IntArray
from greenadapt.tasks.base import Encoder
from greenadapt.tasks.classification import Text, longest_first, text_inputs, with_target
from greenadapt.tokenization.added_words import AddedWords, new_entries
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.files import read_settings, special_ids
from greenadapt.tokenization.vocabulary import BaseVocabulary
from tests.conftest import bytelevel_tokenizer, save_tokenizer, wordpiece_tokenizer

LONG = "the patient with tachycardia was not isolated from sample a1 and e2 of the virus "
TEXTS = ["", " ", "heart", "tachycardia", "the heart rate", LONG, LONG * 3, "\u200b"]


def make_encoder(folder: Path, kind: str, max_length: int, words: list[str] | None = None) -> Encoder:
    """An encoder of a real tokenizer, with a row for each of ``words``."""
    if kind == "roberta":
        names = dict(bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>", pad_token="<pad>",
                     unk_token="<unk>", mask_token="<mask>")  # fmt: skip
        save_tokenizer(bytelevel_tokenizer(), folder, "RobertaTokenizer", **names)
    else:
        save_tokenizer(wordpiece_tokenizer(), folder, "BertTokenizer")
    plain = DualTokenizer(folder, AddedWords.none(1000))
    vocabulary = BaseVocabulary(plain.base)
    added = AddedWords.build(new_entries(words or [], vocabulary), vocabulary, vocabulary.size, "base")
    return Encoder(DualTokenizer(folder, added), ARCHITECTURES[kind], max_length)


def plain_transformers(folder: Path, kind: str) -> Any:
    from transformers import PreTrainedTokenizerFast
    from transformers.models.bert import BertTokenizer

    if kind == "bert":
        return BertTokenizer.from_pretrained(folder)
    settings = {name: value for name, value in read_settings(folder).items() if name.endswith("_token")}
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **settings)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("max_length", [16, 17, 40])
def test_pairs_and_truncation_are_transformers_own(tmp_path: Path, kind: str, max_length: int) -> None:
    encoder = make_encoder(tmp_path, kind, max_length)
    reference = plain_transformers(tmp_path, kind)
    pairs: list[tuple[str, str | None]] = [*product(TEXTS, TEXTS), *((text, None) for text in TEXTS)]
    views = list(text_inputs((Text(*pair) for pair in pairs), encoder, Counter()))
    assert len(views) == len(pairs)
    for (first, second), view in zip(pairs, views, strict=True):
        # In a list, since a lone empty second text is taken for none.
        batch = [first] if second is None else [(first, second)]
        wanted = {name: row[0] for name, row in reference(batch, truncation=True, max_length=max_length).items()}
        (feature,) = view.base
        assert feature.ids.tolist() == wanted["input_ids"]
        if kind == "bert":
            assert feature.types.tolist() == wanted["token_type_ids"]
        assert view.expanded is view.base
        assert feature.units.tolist() == [0]
        assert view.n_units == 1


def test_longest_first_is_the_tokenizers_librarys(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path, "bert", 16)
    reference = plain_transformers(tmp_path, "bert")
    for n_first, n_second, room in product(range(0, 14), range(0, 14), (8, 9)):
        pair, length = ("the " * n_first, "a " * n_second), room + encoder.n_special_pair
        ids = reference([pair], truncation="longest_first", max_length=length)["input_ids"][0]
        counts = Counter(reference.convert_ids_to_tokens(ids))
        assert longest_first(n_first, n_second, room) == (counts["the"], counts["a"])


def test_each_view_is_cut_on_its_own(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path, "bert", 16, ["tachycardia"])
    (base,) = encoder.tokenizer.encode_batch(["tachycardia"])
    assert (len(base.base.ids), len(base.expanded.ids)) == (4, 1)
    counts: Counter[str] = Counter()
    texts = ["tachycardia " * 5, "tachycardia " * 20, "heart", ""]
    views = list(text_inputs(map(Text, texts), encoder, counts))
    assert [(len(view.base[0]), len(view.expanded[0])) for view in views] == [(16, 7), (16, 16), (3, 3), (2, 2)]
    assert counts["cut"] == 2
    new_id = int(base.expanded.ids[0])
    assert views[0].expanded[0].ids.tolist() == [encoder.special.cls, *[new_id] * 5, encoder.special.sep]
    pair = next(text_inputs([Text("tachycardia " * 5, "heart " * 9)], encoder, Counter()))
    assert (len(pair.base[0]), len(pair.expanded[0])) == (16, 16)
    assert int(np.sum(pair.base[0].types)) == 7  # of 20 and 9 pieces, 7 and 6 fit; the separator is the second's
    assert int(np.sum(pair.expanded[0].types)) == 9  # of 5 and 9, 5 and 8


def test_texts_are_streamed(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path, "bert", 16)
    taken = []

    def endless() -> Any:
        while True:
            taken.append(None)
            yield Text("the heart")

    views = text_inputs(endless(), encoder, Counter())
    for _ in range(10):
        next(views)
    assert len(taken) < 1000


def test_targets_go_to_both_views(tmp_path: Path) -> None:
    target: IntArray = np.asarray(3, np.int64)
    for words in ([], ["tachycardia"]):
        encoder = make_encoder(tmp_path / str(len(words)), "bert", 16, words)
        view = with_target(next(text_inputs([Text("tachycardia")], encoder, Counter())), target)
        assert view.base[0].target is target
        assert view.expanded[0].target is target
        assert (view.expanded is view.base) == (not words)


def test_an_empty_pair_has_only_special_pieces(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path / "roberta", "roberta", 40)
    special = special_ids(bytelevel_tokenizer(), {})
    (feature,) = next(text_inputs([Text("", "")], encoder, Counter())).base
    assert feature.ids.tolist() == [special.cls, special.sep, special.sep, special.sep]
