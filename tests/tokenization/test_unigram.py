"""XLM-RoBERTa, whose Unigram tokenizer marks words by a space of its own: read as transformers does, trained, asked."""

import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.tasks.base import Encoder
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from tests.conftest import SPECIALS_OF_ROBERTA, save_tokenizer, unigram_tokenizer
from tests.support.small_tasks import TinyModel
from tests.support.words_of_pieces import extents

WHITE = r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
PARTS = [
    *("heart", "rates", "tachycardia", "Virus-1", "x", "日本", "e\u0301te\u0301", "ﬁ", "\U0001f600", "[SEP]", "."),
    *(" ", "  ", "\n", "\t\r\n", "\xa0", "\u3000", "\u2028", "\u200b", "\x1c", "▁", "a▁b"),
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS) | st.characters(exclude_categories=["Cs"]), max_size=14).map("".join)
SENTENCE = (
    "The patient with tachycardia-1 (heart rate 212) was in\xa0the sample;\n\n the coronavirus' virus\u3000— isolated"
)


def sentencepiece_tokenizer() -> Tokenizer:
    """The same pieces behind SentencePiece's own rules, as many model folders have them: a mark for a run of white
    space, what has no width left out, and words only split at marks.
    """
    tokenizer = unigram_tokenizer()
    steps = [("\u200b", ""), (Regex(r"\s"), " "), (Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), *(normalizers.Replace(*step) for step in steps)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


@pytest.fixture(scope="module", params=[unigram_tokenizer, sentencepiece_tokenizer])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param.__name__)
    # The class XLMRobertaTokenizer has rules of its own, those of unigram_tokenizer.
    name = "XLMRobertaTokenizer" if request.param is unigram_tokenizer else "PreTrainedTokenizerFast"
    save_tokenizer(request.param(), path, name, **SPECIALS_OF_ROBERTA)
    return path


@pytest.fixture(scope="module")
def plain(folder: Path) -> Any:
    """What anyone gets from transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer).__name__ in ("XLMRobertaTokenizer", "TokenizersBackend", "PreTrainedTokenizerFast")
    return tokenizer


@pytest.fixture(scope="module")
def dual(folder: Path) -> DualTokenizer:
    return DualTokenizer.of_model(folder, 121)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(text=TEXTS)
def test_pieces_are_those_of_transformers(dual: DualTokenizer, plain: Any, text: str) -> None:
    encoding, expected = dual.encode(text), plain(text, add_special_tokens=False, return_offsets_mapping=True)
    assert encoding.base.ids.tolist() == encoding.expanded.ids.tolist() == expected["input_ids"]
    assert len(set(expected.word_ids())) <= encoding.n_words <= len(expected["input_ids"])
    begins, ends = encoding.base.spans.T
    assert (begins <= ends).all()
    assert (np.diff(begins) >= 0).all()
    plain_ends = np.maximum([end for _, end in expected["offset_mapping"]], begins).astype(int)
    assert (ends >= plain_ends).all()  # behind marks that the normalizer composes
    marks = "".join(text[plain_end:end] for plain_end, end in zip(plain_ends, ends, strict=True))
    assert {unicodedata.category(mark) for mark in marks} <= {"Mn", "Mc", "Me", "Lo"}
    for begin, end in extents(encoding.base):
        assert end - begin < 2 or not re.match(WHITE, text[begin]) or re.fullmatch(f"{WHITE}+", text[begin:end])


@pytest.mark.parametrize(("first", "second"), [("heart rate", "of the  patient"), (SENTENCE, "日本 <mask> x")])
def test_inputs_are_those_of_transformers(tiny_model: TinyModel, first: str, second: str) -> None:
    checkpoint = Checkpoint(tiny_model("XLMRobertaModel"))
    encoder, ours = Encoder.of(checkpoint), DualTokenizer.of_model(checkpoint.folder, checkpoint.n_rows)
    assert (encoder.max_length, encoder.n_special_pair, encoder.special.pad) == (158, 4, 1)
    pieces = [ours.encode(text).base.ids for text in (first, second)]
    file = checkpoint.folder / "tokenizer.json"
    for theirs in (
        transformers.AutoTokenizer.from_pretrained(checkpoint.folder),
        transformers.XLMRobertaTokenizer.from_pretrained(checkpoint.folder),
        transformers.PreTrainedTokenizerFast(tokenizer_file=str(file), **SPECIALS_OF_ROBERTA),
    ):
        assert theirs(first)["input_ids"] == encoder.single(pieces[0])[0].tolist()
        ids, types, begin = encoder.pair(*pieces)
        assert theirs(first, second)["input_ids"] == ids.tolist()
        assert not types.any()
        assert ids[begin : begin + len(pieces[1])].tolist() == pieces[1].tolist()


def test_given_words_have_their_pieces(dual: DualTokenizer, plain: Any) -> None:
    words = ["beta-blocker", "tachycardia,", "日本", "x", "heart"]
    encoding, expected = dual.encode(words).base, plain(words, is_split_into_words=True, add_special_tokens=False)
    assert encoding.input_words is not None
    assert encoding.ids.tolist() == expected["input_ids"]
    assert encoding.input_words.tolist() == expected.word_ids()
    text = " ".join(words)
    for i, word in enumerate(words):
        spans = encoding.spans[encoding.input_words == i]
        assert text[spans[0, 0] : spans[-1, 1]] == word
