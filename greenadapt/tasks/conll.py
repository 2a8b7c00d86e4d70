"""Tagged sentences from CoNLL files and records, their entities, and chunks."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from greenadapt.corpus.opening import open_binary
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError
from greenadapt.storage.arrays import Array, IntArray, offsets_of

UNTYPED = "entity"
"""The type of entities in data whose tags are a bare ``B`` and ``I``."""

_OPENS = frozenset("BSU")
_CLOSES = frozenset("ESLU")
_PREFIXES = frozenset("BIESLU")


@dataclass(frozen=True)
class EntitySpan:
    """An entity: words ``first`` to ``last`` (inclusive, from 0) of a sentence, and its ``type``."""

    first: int
    last: int
    type: str


def is_tag(tag: str) -> bool:
    """Whether ``tag`` is ``O``, or one of B I E S L U, alone or followed by ``-`` and a type."""
    return tag == "O" or (tag[:1] in _PREFIXES and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)))


def iob2(tags: Iterable[str]) -> list[str]:
    """Tags of any of IOB1, IOB2, BIOES and BILOU as IOB2, in which every entity begins with ``B-``.

    As in CoNLL's conlleval script, an I (or E or L) that does not continue an entity of its type begins an entity.
    """
    converted = []
    open_type = None
    for tag in tags:
        if tag == "O":
            open_type = None
            converted.append(tag)
            continue
        prefix, kind = tag[0], tag[2:] or UNTYPED
        converted.append(f"B-{kind}" if prefix in _OPENS or kind != open_type else f"I-{kind}")
        open_type = None if prefix in _CLOSES else kind
    return converted


@cache
def _inside(labels: tuple[str, ...]) -> tuple[IntArray, IntArray, IntArray]:
    """The I- labels, the B- labels of their types, and for each label the B- that opens it, -1 if it is no I-."""
    inside = np.array([i for i, label in enumerate(labels) if label.startswith("I-")], np.int64)
    begin = np.array([labels.index(f"B-{labels[i][2:]}") for i in inside], np.int64)
    opens = np.full(len(labels), -1)
    opens[inside] = begin
    return inside, begin, opens


def most_probable(scores: Array, labels: tuple[str, ...]) -> IntArray:
    """The sequence of ``labels`` with the largest sum of ``scores``, (n_words, k), among those in which an I- stands
    behind a B- or I- of its type: indices of labels, (n_words,).

    If the scores are logits, it is the most probable one (constrained decoding, arXiv 2010.04362), found by Viterbi's
    algorithm. ``labels`` are those of IOB2.
    """
    inside, begin, opens = _inside(labels)
    best: IntArray = scores.argmax(axis=1)
    before = np.append(-1, best[:-1])
    if np.all((opens[best] < 0) | (before == best) | (before == opens[best])):
        return best  # as of most sentences
    total = scores[0].copy()
    total[inside] = -np.inf
    previous = np.empty(scores.shape, np.int64)
    for number in range(1, len(scores)):
        previous[number] = total.argmax()
        previous[number, inside] = np.where(total[inside] >= total[begin], inside, begin)
        total = total[previous[number]] + scores[number]
    best[-1] = total.argmax()
    for number in range(len(scores) - 1, 0, -1):
        best[number - 1] = previous[number, best[number]]
    return best


def entities(tags: Sequence[str]) -> list[EntitySpan]:
    """The entities of a sentence's tags, of any scheme that ``iob2`` reads, in order."""
    result = []
    first, kind = 0, ""
    for position, tag in enumerate([*iob2(tags), "O"]):
        if tag.startswith("I-"):
            continue
        if kind:
            result.append(EntitySpan(first, position - 1, kind))
        first, kind = position, tag[2:]
    return result


def entity_counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Array:
    """True positives, predicted and gold entities of each sentence, (n, 3) float64; raises ``ValueError`` for lists
    of different length.
    """
    counts = np.zeros((len(gold), 3))
    for row, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True)):
        gold_entities, predicted_entities = set(entities(gold_tags)), set(entities(predicted_tags))
        counts[row] = len(gold_entities & predicted_entities), len(predicted_entities), len(gold_entities)
    return counts


def entity_f1(counts: Array) -> Array:
    """F1 = 2 tp / (predicted + gold), 0 if both are 0: (…, 3) sums of ``entity_counts`` → (…)."""
    total = counts[..., 1] + counts[..., 2]
    return np.divide(2 * counts[..., 0], total, out=np.zeros(np.shape(total)), where=total > 0)


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, object]:
    """Precision, recall and F1 of exact entities (conlleval; equal to seqeval) over all types, and by type.

    Precision, recall and F1 are from 0 to 1, and 0 without predicted or gold entities; ``support`` is the number of
    gold entities.
    """
    hits, n_predicted, n_gold = Counter[str](), Counter[str](), Counter[str]()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_entities, predicted_entities = set(entities(gold_tags)), set(entities(predicted_tags))
        n_gold.update(entity.type for entity in gold_entities)
        n_predicted.update(entity.type for entity in predicted_entities)
        hits.update(entity.type for entity in gold_entities & predicted_entities)
    types = sorted(n_predicted.keys() | n_gold.keys())
    by_type = {kind: _scores(hits[kind], n_predicted[kind], n_gold[kind]) for kind in types}
    return {**_scores(hits.total(), n_predicted.total(), n_gold.total()), "by_type": by_type}


def _scores(hits: int, n_predicted: int, n_gold: int) -> dict[str, float | int]:
    return {
        "precision": hits / n_predicted if n_predicted else 0.0,
        "recall": hits / n_gold if n_gold else 0.0,
        "f1": 2 * hits / (n_predicted + n_gold) if n_predicted + n_gold else 0.0,
        "support": n_gold,
    }


Split = Literal["whitespace", "punctuation"]
Spans = tuple[tuple[int, int], ...]

_CHUNK = re.compile(r"\S+")
_CLINGING = frozenset(",;:.()")
_CLINGING_SHARE = 0.01


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, and their IOB2 tags if it is labelled.

    An unlabelled sentence has its ``text``, and ``spans``: the first character of each word in it, and the character
    after its last.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    spans: Spans | None = None
    text: str | None = None


def split_text(text: str, split: Split) -> Sentence:
    """Split raw text at white space; with ``punctuation``, every punctuation character is a word, too."""
    spans: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        begin, end = match.span()
        is_mixed = split == "punctuation" and not match.group().isalnum()
        for position in range(begin, end) if is_mixed else ():
            if _is_punctuation(text[position]):
                spans += [(begin, position)] if begin < position else []
                spans.append((position, position + 1))
                begin = position + 1
        if begin < end:
            spans.append((begin, end))
    return Sentence(tuple(text[begin:end] for begin, end in spans), None, tuple(spans), text)


def joined(words: Sequence[str]) -> Sentence:
    """A sentence of ``words``, whose text is the words joined by spaces."""
    ends = [*accumulate(len(word) + 1 for word in words)]
    spans = tuple((end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True))
    return Sentence(tuple(words), None, spans, " ".join(words))


def usual_split(words: Iterable[str]) -> Split:
    """How the text of ``words`` was split.

    ``punctuation`` if under 1 % of the words with a letter or digit begin or end with one of ``,;:.()``: in text that
    is split only at white space, about every tenth word does.
    """
    n_words = n_clinging = 0
    for word in words:
        if any(map(str.isalnum, word)):
            n_words += 1
            n_clinging += word[0] in _CLINGING or word[-1] in _CLINGING
    return "punctuation" if n_clinging < _CLINGING_SHARE * n_words else "whitespace"


def _is_punctuation(character: str) -> bool:
    """Whether BERT's tokenizer treats the character as punctuation, which includes ASCII symbols."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def cut(
    sizes: Sequence[IntArray], tags: Sequence[str] | None, max_words: int | None, max_pieces: int
) -> list[tuple[int, int]]:
    """Split a sentence into consecutive chunks: the first word of each, and the word after its last.

    ``sizes`` has the number of pieces of each word, (n,) for each tokenization and at most ``max_pieces``. A chunk is
    as long as the limits allow. With IOB2 ``tags`` (n,), it ends before an entity that it would split, unless the
    entity is longer than a chunk (Poerner et al. 2020, section 4.2).
    """
    n_words = len(sizes[0])
    max_words = max_words or n_words
    if n_words <= max_words and all(counts.sum() <= max_pieces for counts in sizes):
        return [(0, n_words)] if n_words else []
    furthest: IntArray = np.minimum(np.arange(n_words) + max_words, n_words)
    for counts in sizes:
        offsets = offsets_of(counts)
        furthest = np.minimum(furthest, np.searchsorted(offsets, offsets[:-1] + max_pieces, "right") - 1)
    chunks = []
    begin = 0
    while begin < n_words:
        end = furthest[begin].item()
        start = end  # of the entity that continues at the end
        while tags is not None and end < n_words and start > begin and tags[start].startswith("I-"):
            start -= 1
        chunks.append((begin, start if start > begin else end))
        begin = chunks[-1][1]
    return chunks


_NEED_TAG = "need O, or B-, I-, E-, S-, L- or U- and a type"
_TAG_FIELDS = ("tags", "ner_tags")
_BLANKS = " \t\r\n"
"""White space that is stripped from the end of a line; other white space may end a word."""


def read_conll(path: str, decoder: Decoder) -> Iterator[Sentence]:
    """Read the sentences of a file with a word per line: the word, columns separated by tabs or spaces, and the tag
    last.

    Empty lines separate sentences; ``-DOCSTART-`` lines are skipped. Raises ``InputError`` with line and column,
    ``MissingError`` if there is no such file.
    """
    with open_binary(path) as stream:
        for rows in conll_sentences(decoder.lines(stream, path), path):
            tags = [_tag(row, path) for row in rows]
            yield Sentence(tuple(row.columns[0] for row in rows), tuple(iob2(tags)))


@dataclass(frozen=True)
class ConllRow:
    """A line of a CoNLL file."""

    line: int
    """From 1."""
    columns: list[str]
    """At least one column; the first is the word, which is not empty."""


def conll_sentences(lines: Iterable[tuple[int, str]], path: str) -> Iterator[list[ConllRow]]:
    """The lines of each sentence in the format of ``read_conll``, with or without a tag.

    Raises ``InputError`` with the line of an empty word.
    """
    rows: list[ConllRow] = []
    for number, text in lines:
        line = text.rstrip(_BLANKS) if text.strip() else ""
        # If a line has a tab, spaces are part of words.
        columns = line.split("\t") if "\t" in line else [column for column in line.split(" ") if column]
        if line and columns[0] != "-DOCSTART-":
            if not columns[0]:
                raise InputError(f"{path}, line {number}: the word is empty", "write a word before the tab")
            rows.append(ConllRow(number, columns))
        elif rows:
            yield rows
            rows = []
    if rows:
        yield rows


def _tag(row: ConllRow, path: str) -> str:
    """The tag of a line; raises ``InputError`` if it has none."""
    tag = row.columns[-1].rstrip()
    if len(row.columns) < 2:
        raise InputError(
            f"{path}, line {row.line}: one column, need a word and its tag",
            "a line is a word, a tab or spaces, and a tag; empty lines separate sentences",
        )
    if not is_tag(tag):
        raise InputError(f"{path}, line {row.line}, column {len(row.columns)}: {tag!r} is not a tag", _NEED_TAG)
    return tag


def tagged_record(record: dict[str, Any], where: str) -> Sentence:
    """The sentence of an object with ``tokens`` and ``tags`` (or ``ner_tags``); raises ``InputError`` with
    ``where``.
    """
    words = tokens_of(record, where)
    field = next((name for name in _TAG_FIELDS if name in record), None)
    if field is None:
        raise InputError(
            f"{where} has no tags", 'give an object such as {"tokens": ["a", "rash"], "tags": ["O", "B-X"]}'
        )
    tags = record[field]
    if not isinstance(tags, list):
        raise InputError(f"{where}: {field} is not a list of strings", _NEED_TAG)
    if len(tags) != len(words):
        raise InputError(f"{where}: {len(words)} tokens and {len(tags)} {field}", "give each token one tag")
    for position, tag in enumerate(tags, start=1):
        if isinstance(tag, int):
            raise InputError(f"{where}: tag {position} is the number {tag}, which has no name", _NEED_TAG)
        if not isinstance(tag, str) or not is_tag(tag):
            raise InputError(f"{where}: {tag!r} (tag {position}) is not a tag", _NEED_TAG)
    return Sentence(words, tuple(iob2(tags)))


def tokens_of(record: dict[str, Any], where: str) -> tuple[str, ...]:
    """The strings of ``tokens``; raises ``InputError`` with ``where`` for anything else."""
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        problem = "has no tokens" if tokens is None else "has tokens that are not a list of strings"
        raise InputError(f"{where} {problem}", 'give an object such as {"tokens": ["a", "rash"]}')
    decoder = Decoder()
    return tuple(decoder.without_surrogates(token, where) for token in tokens)
