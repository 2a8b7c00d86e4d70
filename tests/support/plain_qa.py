"""The QA method of arXiv 2004.03354, section 5, written down step by step: loops over plain transformers, one forward
pass a window, nothing shared with the package."""

import math
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

Pair = tuple[float, float]
VIEWS = ("base_tokenizer", "")  # where the two tokenizers lie in an expanded model's folder
NOTHING = (-math.inf, -math.inf)


def words_of(context: str, unit: str) -> list[tuple[int, int]]:
    """(first character, last character + 1) of each word, found character by character."""
    words: list[tuple[int, int]] = []
    kind_before = "space"
    for position, character in enumerate(context):
        kind = "space" if character.isspace() else "letter"
        if unit == "punct" and character in string.punctuation:
            kind = "punct"
        if kind != "space" and kind == kind_before:
            words[-1] = (words[-1][0], position + 1)
        elif kind != "space":
            words.append((position, position + 1))
        kind_before = kind
    return words


def windows_of(m: int, q: int, max_length: int, n_special: int) -> Iterator[tuple[int, int, int, int]]:
    """``a_l``, ``a_r``, ``p_l`` and ``p_r`` of each step."""
    width = math.floor((max_length - n_special - q) / 2)
    for step in range(math.ceil(m / width)):
        a_l = step * width
        a_r = min(m, a_l + width)
        budget = max_length - n_special - q - (a_r - a_l)
        p_l = min(a_l, max(budget // 2, budget - (m - a_r)))
        yield a_l, a_r, p_l, min(m - a_r, budget - p_l)


def spans_by_brute_force(
    words: list[tuple[int, int]], logits: list[Pair], max_chars: int
) -> list[tuple[float, int, int]]:
    """(logit, first word, last word) of all spans that may be an answer, best first, in the order of the text."""
    spans = []
    for first in range(len(words)):
        for last in range(first, len(words)):
            logit = logits[first][0] + logits[last][1]
            if words[last][1] - words[first][0] <= max_chars and logit > -math.inf:
                spans.append((logit, first, last))
    return sorted(spans, key=lambda span: -span[0])


def n_best(context: str, words: list[tuple[int, int]], logits: list[Pair], max_chars: int = 500) -> list[Any]:
    """Text, logit and probability of the 20 best spans of different text."""
    best: dict[str, float] = {}
    for logit, first, last in spans_by_brute_force(words, with_ends_of_shared_pieces(words, logits), max_chars):
        text = context[words[first][0] : words[last][1]]
        if text not in best and len(best) < 20:
            best[text] = logit
    total = sum(math.exp(logit - max(best.values())) for logit in best.values())
    return [(text, logit, math.exp(logit - max(best.values())) / total) for text, logit in best.items()]


def with_ends_of_shared_pieces(words: list[tuple[int, int]], logits: list[Pair]) -> list[Pair]:
    """A word in which no piece begins takes the end of the piece before it, where no space is between them."""
    moved = list(logits)
    for i in range(1, len(words)):
        if logits[i] == NOTHING and words[i][0] == words[i - 1][1]:
            moved[i] = (moved[i][0], moved[i - 1][1])
            moved[i - 1] = (moved[i - 1][0], -math.inf)
    return moved


@dataclass(frozen=True)
class PlainQa:
    """A model's folder as plain transformers opens it, with the tokenizer of the model it was made from beside it."""

    folder: Path
    max_length: int
    unit: str

    def answers(self, question: str, context: str) -> list[Any]:
        """``n_best`` by the mean over both tokenizers."""
        return n_best(context, words_of(context, self.unit), self.mean(question, context))

    def mean(self, question: str, context: str) -> list[Pair]:
        """Start and end logit of each word, the mean over both tokenizers."""
        first, second = (self.word_logits(question, context, name) for name in VIEWS)
        return [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in zip(first, second, strict=True)]

    def word_logits(self, question: str, context: str, tokenizer: str) -> list[Pair]:
        """Start and end logit of each word: the highest over its pieces, each for itself."""
        words = words_of(context, self.unit)
        pieces, owners = self._pieces(tokenizer, context, words)
        logits = self._piece_logits(tokenizer, question, pieces)
        highest = [NOTHING] * len(words)
        for owner, (start, end) in zip(owners, logits, strict=True):
            if owner is not None:
                highest[owner] = (max(highest[owner][0], start), max(highest[owner][1], end))
        return highest

    def _pieces(self, name: str, context: str, words: list[tuple[int, int]]) -> tuple[list[int], list[int | None]]:
        """The pieces of the context, and the word that each belongs to.

        WordPiece is applied to one word after the other. Byte-level BPE and Unigram write spaces too, so that the
        context is cut as a whole, and a piece belongs to the word of its first character.
        """
        tokenizer = self._tokenizers[name]
        pieces: list[int] = []
        owners: list[int | None] = []
        if not self._writes_spaces:
            for word, (begin, end) in enumerate(words):
                ids = tokenizer(context[begin:end], add_special_tokens=False)["input_ids"]
                pieces += ids
                owners += [word] * len(ids)
            return pieces, owners
        encoding = tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)
        for begin, _ in encoding["offset_mapping"]:
            owners.append(next((word for word, span in enumerate(words) if span[0] <= begin < span[1]), None))
        return encoding["input_ids"], owners

    def _piece_logits(self, name: str, question: str, context: list[int]) -> list[Pair]:
        """Start and end logit of each piece of the context: the active slices of all windows behind each other."""
        tokenizer = self._tokenizers[name]
        between = 2 if self._kind in ("roberta", "xlm-roberta", "mpnet") else 1
        question_ids = tokenizer(question, add_special_tokens=False)["input_ids"][: self.max_length - (between + 2) - 2]
        before = [tokenizer.cls_token_id, *question_ids, *[tokenizer.sep_token_id] * between]
        logits: list[Pair] = []
        for a_l, a_r, p_l, p_r in windows_of(len(context), len(question_ids), self.max_length, between + 2):
            ids = [*before, *context[a_l - p_l : a_r + p_r], tokenizer.sep_token_id]
            padding = self.max_length - len(ids)
            inputs = {
                "input_ids": torch.tensor([ids + [tokenizer.pad_token_id] * padding]),
                "attention_mask": torch.tensor([[1] * len(ids) + [0] * padding]),
            }
            if self._kind in ("bert", "electra"):
                inputs["token_type_ids"] = torch.tensor([[0] * len(before) + [1] * (self.max_length - len(before))])
            with torch.no_grad():
                output = self._model(**inputs)
            active = slice(len(before) + p_l, len(before) + p_l + a_r - a_l)
            starts, ends = output.start_logits[0][active].tolist(), output.end_logits[0][active].tolist()
            logits += zip(starts, ends, strict=True)
        return logits

    @cached_property
    def _tokenizers(self) -> dict[str, Any]:
        from transformers import AutoTokenizer

        return {name: AutoTokenizer.from_pretrained(self.folder / name) for name in VIEWS}

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForQuestionAnswering

        return AutoModelForQuestionAnswering.from_pretrained(self.folder).eval()

    @property
    def _kind(self) -> str:
        return str(self._model.config.model_type)

    @property
    def _writes_spaces(self) -> bool:
        return bool({"Ġvirus", "▁virus"} & self._tokenizers["base_tokenizer"].get_vocab().keys())


def assert_same_answers(ours: list[dict[str, Any]], theirs: list[Any], context: str) -> None:
    """Answers of the package and those of ``n_best``."""
    if not theirs:
        assert [(answer["answer"], answer["score"]) for answer in ours] == [("", 0.0)]
        return
    texts, logits, shares = zip(*theirs, strict=True)
    assert [answer["answer"] for answer in ours] == list(texts)
    assert [answer["logit"] for answer in ours] == pytest.approx(logits, abs=1e-5)
    assert [answer["score"] for answer in ours] == pytest.approx(shares, abs=1e-5)
    assert all(context[answer["start"] : answer["end"]] == answer["answer"] for answer in ours)
