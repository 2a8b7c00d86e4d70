"""Sentences with tags, from CoNLL files and records, and the entities in them."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
class Entity:
    """Words ``first`` to ``last`` (inclusive, from 0) of a sentence, which are one ``type``."""

    first: int
    last: int
    type: str


def is_tag(tag: str) -> bool:
    """Whether ``tag`` is ``O``, or one of B I E S L U alone or with ``-`` and a type behind."""
    return tag == "O" or (tag[:1] in _PREFIXES and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)))


def iob2(tags: Iterable[str]) -> list[str]:
    """Tags of any of IOB1, IOB2, BIOES and BILOU as IOB2, in which every entity begins with ``B-``.

    As in CoNLL's conlleval script, an I (or E or L) that nothing of its type stands open before begins an entity.
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


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence's tags, of any scheme that ``iob2`` reads, in order."""
    found = []
    first, kind = 0, ""
    for position, tag in enumerate([*iob2(tags), "O"]):
        if tag.startswith("I-"):
            continue
        if kind:
            found.append(Entity(first, position - 1, kind))
        first, kind = position, tag[2:]
    return found


def entity_counts(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Array:
    """True positives, predicted and gold entities of each sentence, (n, 3) float64; raises ``ValueError`` for lists
    of different length.
    """
    counts = np.zeros((len(gold), 3))
    for row, (true, guess) in enumerate(zip(gold, predicted, strict=True)):
        wanted, found = set(entities(true)), set(entities(guess))
        counts[row] = len(wanted & found), len(found), len(wanted)
    return counts


def entity_f1(counts: Array) -> Array:
    """F1 = 2 tp / (predicted + gold), 0 if there is nothing: (…, 3) sums of ``entity_counts`` → (…)."""
    total = counts[..., 1] + counts[..., 2]
    f1: Array = np.divide(2 * counts[..., 0], total, out=np.zeros(np.shape(total)), where=total > 0)
    return f1


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, object]:
    """Precision, recall and F1 of exact entities (conlleval; equal to seqeval) over all types, and by type.

    Precision, recall and F1 lie between 0 and 1, 0 if nothing was predicted or nothing is there; ``support`` is the
    number of gold entities.
    """
    hits, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for true, guess in zip(gold, predicted, strict=True):
        true_set, guess_set = set(entities(true)), set(entities(guess))
        wanted.update(entity.type for entity in true_set)
        found.update(entity.type for entity in guess_set)
        hits.update(entity.type for entity in true_set & guess_set)
    types = sorted(found.keys() | wanted.keys())
    by_type = {kind: _scores(hits[kind], found[kind], wanted[kind]) for kind in types}
    return {**_scores(hits.total(), found.total(), wanted.total()), "by_type": by_type}


def _scores(hits: int, found: int, wanted: int) -> dict[str, float | int]:
    return {
        "precision": hits / found if found else 0.0,
        "recall": hits / wanted if wanted else 0.0,
        "f1": 2 * hits / (found + wanted) if found + wanted else 0.0,
        "support": wanted,
    }


Split = Literal["whitespace", "punctuation"]
Spans = tuple[tuple[int, int], ...]

_CHUNK = re.compile(r"\S+")
_CLINGING = frozenset(",;:.()")
_CLINGING_SHARE = 0.01


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, with an IOB2 tag each where it is labelled.

    Where its ``text`` is kept, as it is for what has no tags, ``spans`` has the first character of each word in it and
    the one after the word's last.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    spans: Spans | None = None
    text: str | None = None


def split_text(text: str, split: Split) -> Sentence:
    """Raw text as a sentence: cut at white space, and with ``punctuation`` every punctuation character is a word."""
    spans: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(text):
        begin, end = match.span()
        if split == "whitespace" or match.group().isalnum():
            spans.append((begin, end))
        else:
            spans += _split_chunk(text, begin, end)
    return Sentence(tuple(text[begin:end] for begin, end in spans), None, tuple(spans), text)


def joined(words: Sequence[str]) -> Sentence:
    """A sentence that is split already, its text the words with a space between them."""
    ends = [*accumulate(len(word) + 1 for word in words)]
    spans = tuple((end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True))
    return Sentence(tuple(words), None, spans, " ".join(words))


def usual_split(words: Iterable[str]) -> Split:
    """How the text that ``words`` come from was split.

    It is ``punctuation`` where under 1 % of the words with a letter or digit begin or end with one of ``,;:.()``: in
    text that is cut at white space only, every tenth word or so does.
    """
    n_words = n_clinging = 0
    for word in words:
        if any(map(str.isalnum, word)):
            n_words += 1
            n_clinging += word[0] in _CLINGING or word[-1] in _CLINGING
    return "punctuation" if n_clinging < _CLINGING_SHARE * n_words else "whitespace"


def _split_chunk(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    spans = []
    for position in range(begin, end):
        if _is_punctuation(text[position]):
            if begin < position:
                spans.append((begin, position))
            spans.append((position, position + 1))
            begin = position + 1
    if begin < end:
        spans.append((begin, end))
    return spans


def _is_punctuation(character: str) -> bool:
    """As BERT's tokenizer has it: ASCII's symbols count, too."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


@dataclass(frozen=True)
class Limits:
    """What a chunk may hold: ``words`` (``None``: any number), and ``pieces`` in each tokenization."""

    words: int | None
    pieces: int


def cut(sizes: Sequence[IntArray], tags: Sequence[str] | None, limits: Limits) -> list[tuple[int, int]]:
    """Chunks of a sentence, each its first word and the one after its last; end to end they are the sentence.

    ``sizes`` are the pieces of each word, (n,) for each tokenization and none above ``limits.pieces``. A chunk is as
    long as the limits allow; given IOB2 ``tags`` (n,), it ends earlier where the next word's tag is I, unless the
    entity began with the chunk and is longer than one (Poerner et al. 2020, section 4.2: chunks that cut no span).
    """
    n_words = len(sizes[0])
    if (limits.words is None or n_words <= limits.words) and all(one.sum() <= limits.pieces for one in sizes):
        return [(0, n_words)] if n_words else []
    reach = _reach(sizes, limits).tolist()
    chunks = []
    begin = 0
    while begin < n_words:
        end = reach[begin]
        chunks.append((begin, _step_back(tags, begin, end) if tags is not None and end < n_words else end))
        begin = chunks[-1][1]
    return chunks


def _reach(sizes: Sequence[IntArray], limits: Limits) -> IntArray:
    """The furthest end of a chunk from each word, (n,)."""
    n_words = len(sizes[0])
    words = n_words if limits.words is None else limits.words
    reach: np.ndarray[Any, np.dtype[np.int64]] = np.minimum(np.arange(n_words) + words, n_words)
    for one in sizes:
        before = offsets_of(one)
        reach = np.minimum(reach, np.searchsorted(before, before[:-1] + limits.pieces, "right") - 1)
    return reach


def _step_back(tags: Sequence[str], begin: int, end: int) -> int:
    """``end``, or the begin of the entity that goes on there, if a chunk is left before it."""
    back = end
    while back > begin and tags[back].startswith("I-"):
        back -= 1
    return back if back > begin else end


_SCHEMES = "O, or B-, I-, E-, S-, L- or U- and a type"
_TAG_FIELDS = ("tags", "ner_tags")
_BLANKS = " \t\r\n"
"""What is left out at the end of a line; other white space may be the end of a word."""


def read_conll(path: str, decoder: Decoder) -> Iterator[Sentence]:
    """The sentences of a file with one word per line, word first and tag last, tabs or spaces between, empty lines
    between sentences; lines of ``-DOCSTART-`` are left out.

    Raises ``InputError`` naming line and column, ``MissingError`` if there is no such file.
    """
    with open_binary(path) as stream:
        for rows in conll_sentences(decoder.lines(stream, path), path):
            tags = [_tag(row, path) for row in rows]
            yield Sentence(tuple(row.columns[0] for row in rows), tuple(iob2(tags)))


@dataclass(frozen=True)
class ConllRow:
    """A line with a word."""

    line: int
    """From 1."""
    columns: list[str]
    """At least one; the first is the word, which is not empty."""


def conll_sentences(lines: Iterable[tuple[int, str]], path: str) -> Iterator[list[ConllRow]]:
    """The lines of each sentence of CoNLL columns, see ``read_conll``, with or without a tag.

    Raises ``InputError`` with the line where a word is empty.
    """
    rows: list[ConllRow] = []
    for number, text in lines:
        line = text.rstrip(_BLANKS) if text.strip() else ""
        # A tab parts the columns of a line that has one, so that a word there may hold a space.
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
            "a line is a word, a tab or spaces, and a tag; sentences are parted by empty lines",
        )
    if not is_tag(tag):
        raise InputError(f"{path}, line {row.line}, column {len(row.columns)}: {tag!r} is not a tag", _need())
    return tag


def tagged_record(record: dict[str, Any], where: str) -> Sentence:
    """The sentence of an object with ``tokens`` and ``tags`` (or ``ner_tags``); ``InputError`` names ``where``."""
    words = tokens_of(record, where)
    field = next((name for name in _TAG_FIELDS if name in record), None)
    if field is None:
        raise InputError(
            f"{where} has no tags", 'give an object such as {"tokens": ["a", "rash"], "tags": ["O", "B-X"]}'
        )
    tags = record[field]
    if not isinstance(tags, list):
        raise InputError(f"{where}: {field} is not a list of strings", _need())
    if len(tags) != len(words):
        raise InputError(f"{where}: {len(words)} tokens and {len(tags)} {field}", "give each token one tag")
    for position, tag in enumerate(tags, start=1):
        if isinstance(tag, int):
            raise InputError(f"{where}: tag {position} is the number {tag}, which has no name", _need())
        if not isinstance(tag, str) or not is_tag(tag):
            raise InputError(f"{where}: {tag!r} (tag {position}) is not a tag", _need())
    return Sentence(words, tuple(iob2(tags)))


def tokens_of(record: dict[str, Any], where: str) -> tuple[str, ...]:
    """The strings in ``tokens``; raises ``InputError`` naming ``where`` for anything else."""
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        problem = "has no tokens" if tokens is None else "has tokens that are not a list of strings"
        raise InputError(f"{where} {problem}", 'give an object such as {"tokens": ["a", "rash"]}')
    decoder = Decoder()
    return tuple(decoder.without_surrogates(token, where) for token in tokens)


def _need() -> str:
    return f"need {_SCHEMES}"
