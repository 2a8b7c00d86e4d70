"""Tagged sentences from CoNLL files and records, their entities, and chunks."""

import re
import string
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, chain, dropwhile, islice
from typing import Any, Literal

import numpy as np

from greenadapt.corpus.opening import open_binary
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, pluralize
from greenadapt.progress import Progress
from greenadapt.store.arrays import Array, IntArray, offsets_of
from greenadapt.store.files import Json

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


def find_most_probable(scores: Array, labels: tuple[str, ...]) -> IntArray:
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
    group: str = field(default="", compare=False)
    """The document that the sentence is from, "" if the file does not tell."""


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


def join_words(words: Sequence[str]) -> Sentence:
    """A sentence of ``words``, whose text is the words joined by spaces."""
    ends = [*accumulate(len(word) + 1 for word in words)]
    spans = tuple((end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True))
    return Sentence(tuple(words), None, spans, " ".join(words))


def guess_split(words: Iterable[str]) -> Split:
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


def split_sentence(
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


_NEED_TAG = "need O, or B-, I-, E-, S-, L- or U- and a type; or in the whole file types without prefixes, and O"
_NAME_COLUMNS = "name the columns, such as --columns _,word,tag"
_ONE_LINE = "a line is a word, a tab or spaces (no commas), and a tag; empty lines separate sentences"
_TAG_FIELDS, _WORD_FIELDS = ("tags", "ner_tags"), ("tokens", "words")
_DOCUMENT_FIELDS = ("document_id", "doc_id", "document")
_DOCUMENT_LINES = ("-DOCSTART-", "# newdoc", "###MEDLINE:")
_SPAN_FIELDS = ("entities", "spans", "labels", "label")
_WORD_NAMES, _TAG_NAMES = {"word", "words", "token", "tokens"}, {"tag", "tags", "label", "labels", "ner", "ner_tags"}
_OTHER_NAMES = {"", "_", "#", "id", "sentence", "sentence_id", "pos", "lemma", "chunk"}
_MOST_BEFORE_LAYOUT = 32
"""Sentences that are read before the layout of the columns is decided."""
_BLANKS = " \t\r\n"
"""White space that is stripped from the end of a line; other white space may end a word."""
_MARKER = re.compile(r"###MEDLINE:\d+|# id \S+ domain=\S+")
"""Lines of JNLPBA and MultiCoNER that begin an abstract and a sentence."""
_RANGE = re.compile(r"\d+[-.]\d+")
"""Ids of CoNLL-U that are no words: ``1-2``, the token that words 1 and 2 make, and ``1.1``, an empty node."""
_MISC = re.compile(r"(?:^|\|)(?:NER|ner|NE|name)=([^|]*)")
_IOB_LIKE = re.compile(r"[BbIi][-_:.].*|.*[-_:.][BbIi]")


@dataclass(frozen=True)
class ConllRow:
    """A line of a CoNLL file."""

    line: int
    """From 1."""
    columns: list[str]
    """At least one column."""
    document: int = 0
    """Number of the document, from 1; 0 before the first line that begins one."""


@dataclass(frozen=True)
class Layout:
    """Which columns of a CoNLL file are read; columns count from 0."""

    n: int
    """The number of columns."""
    word: int
    tag: int | None
    """The column of the tags; ``None``: none is known."""
    line: int | None
    """The line that ``n`` is taken from; ``None``: the user named the columns."""
    begin: int | None = None
    """The number of a sentence's first word, if the first column counts the words."""

    @classmethod
    def of(cls, blocks: Sequence[list[ConllRow]], path: str, names: Sequence[str]) -> "Layout":
        """The layout of a file that begins with ``blocks``: by the ``names`` of its columns, one of which is ``word``,
        or else as its first sentence of several words shows it.

        Raises ``InputError`` if the first column has no words, and does not count them either.
        """
        if names or not blocks:
            word, tag = (names.index(name) if name in names else None for name in ("word", "tag"))
            return cls(len(names), word or 0, tag, None)
        sentences = [body for block in blocks if (body := [*dropwhile(_begins_with_hash, block)])] or blocks
        rows = next((sentence for sentence in sentences if len(sentence) > 1), sentences[0])
        n, firsts = len(rows[0].columns), [row.columns[0] for row in rows]
        tag = n - 1 if n > 1 and all(is_tag(row.columns[-1].rstrip()) for row in rows) else None
        ids = [i for i in firsts if n != 10 or not _RANGE.fullmatch(i)]
        begin = 0 if ids[:1] == ["0"] else 1
        counts = n > (1 if tag is None else 2) and ids == [*map(str, range(begin, begin + len(ids)))]
        if not counts and n > 1 and len(rows) > 1:
            is_same = n > 2 and (len({*firsts}) == 1 or all(map(str.isdigit, firsts)))
            if is_same or all(map(is_tag, firsts)):
                raise InputError(
                    f"{path}, line {rows[0].line}: column 1 seems to have no words, in this sentence "
                    f"{', '.join(firsts[:5])}",
                    _NAME_COLUMNS,
                )
        return cls(n, int(counts), tag, rows[0].line, begin if counts else None)

    def words(self, rows: Iterable[ConllRow], path: str) -> list[ConllRow]:
        """The rows of a sentence that are words; raises ``InputError`` for one with other columns."""
        words: list[ConllRow] = []
        for row in rows:
            is_part = self.n == 10 and self.word > 0 and _RANGE.fullmatch(row.columns[0])
            if not is_part and (words or not _begins_with_hash(row) or self._may_be_word(row)):
                self._check(row, len(words), path)
                words.append(row)
        return words

    def _may_be_word(self, row: ConllRow) -> bool:
        """Whether a row that begins with # may be a word, and is not a comment."""
        fits = len(row.columns) == self.n and self.begin is None and not _MARKER.fullmatch(" ".join(row.columns))
        return fits and (self.tag is None or is_tag(row.columns[self.tag].rstrip()))

    def _check(self, row: ConllRow, n_before: int, path: str) -> None:
        n, where = len(row.columns), f"{path}, line {row.line}"
        if "" in row.columns[self.word : self.word + 1]:
            raise InputError(f"{where}: the word is empty", "write a word before the tab")
        if self.line is None and not max(self.word, self.tag or 0) < n <= self.n:
            raise InputError(
                f"{where}: {pluralize(n, 'column')}, --columns names {self.n}", "name all columns of the file"
            )
        if self.line is not None and n != self.n:
            raise InputError(
                f"{where}: {pluralize(n, 'column')}, line {self.line} has {self.n}",
                "separate them by tabs, or correct the line" if n > self.n else _ONE_LINE,
            )
        if self.begin is not None and row.columns[0] != str(number := self.begin + n_before):
            raise InputError(
                f"{where}: column 1 counted the words before, here it is {row.columns[0]!r}, not {number}",
                _NAME_COLUMNS,
            )

    def describe(self, tag: int | None = None) -> str:
        """The columns that are read, in words; empty if there is no other choice."""
        if self.line is None or (self.n < 3 and not self.word):
            return ""
        tags = "" if tag is None else f" and column {tag + 1} as the tag"
        return f"read column {self.word + 1} of {self.n} as the word{tags}; --columns names others"


def _begins_with_hash(row: ConllRow) -> bool:
    return row.columns[0].startswith("#")


def conll_sentences(
    lines: Iterable[tuple[int, str]], path: str, columns: Sequence[str] = ()
) -> tuple[Layout, Iterator[list[ConllRow]]]:
    """The layout of the columns of a CoNLL file, and its sentences, each as the rows of its words, lazily.

    A line has a word and its other columns, separated by tabs or spaces. Empty lines and ``-DOCSTART-`` separate
    sentences. A line with # before a sentence is a comment unless it can be a word, and a first line with the names of
    columns is skipped. ``columns`` names the columns, one of them ``word``. Without them the word is in the first
    column, or in the second if the first counts the words of each sentence. Raises ``InputError`` with the line of an
    empty word or of another number of columns, and for CoNLL-2012.
    """
    blocks = _blocks(lines)
    head = [*islice(blocks, _MOST_BEFORE_LAYOUT)]
    if head and not columns and head[0][0].columns[:2] == ["#begin", "document"]:
        raise InputError(
            f"{path}, line {head[0][0].line}: this is CoNLL-2012 (OntoNotes), whose entities are in brackets",
            "convert it to lines of a word, a tab and a tag such as B-PERSON",
        )
    if head and _has_names(head[0][0]):
        head[:1] = [head[0][1:]] if head[0][1:] else []
    layout = Layout.of(head, path, columns)
    return layout, (words for block in chain(head, blocks) if (words := layout.words(block, path)))


def _has_names(row: ConllRow) -> bool:
    """Whether a row has the names of the columns, of the words and of the tags among them."""
    names = {column.strip().lower() for column in row.columns}
    return bool(names & _WORD_NAMES and names & _TAG_NAMES) and names <= _WORD_NAMES | _TAG_NAMES | _OTHER_NAMES


def _blocks(lines: Iterable[tuple[int, str]]) -> Iterator[list[ConllRow]]:
    """The rows between lines that are empty or begin a document."""
    rows: list[ConllRow] = []
    document = 0
    for number, text in lines:
        line = text.rstrip(_BLANKS) if text.strip() else ""
        document += line.startswith(_DOCUMENT_LINES)
        if line and not line.startswith("-DOCSTART-"):
            # If a line has a tab, spaces are part of words.
            columns = line.split("\t") if "\t" in line else [*filter(None, line.split(" "))]
            rows.append(ConllRow(number, columns, document))
        elif rows:
            yield rows
            rows = []
    if rows:
        yield rows


def read_conll(path: str, decoder: Decoder, progress: Progress, columns: Sequence[str] = ()) -> list[Sentence]:
    """The tagged sentences of a file as ``conll_sentences`` reads it, in IOB2.

    Without ``columns`` the tag is the last column, in GermEval the outer one, in CoNLL-U ``NER=`` of column 10, or the
    only column with tags; a note says which, if there are more than two. Raises ``InputError`` with line and column,
    ``MissingError`` if there is no such file.
    """
    with open_binary(path) as stream:
        layout, lazy_sentences = conll_sentences(decoder.lines(stream, path), path, columns)
        read = list(lazy_sentences)
    if not read:
        return []
    rows = [*chain.from_iterable(read)]
    column = layout.tag if columns else _tag_column(layout, rows, path)
    if column is None:
        raise InputError(f"{path}: --columns names no tag", "name it, such as --columns word,tag")
    tags = [row.columns[column].rstrip() for row in rows]
    if layout.n == 10 and column == 9 and any(map(_MISC.search, tags)):
        tags = [match[1] if (match := _MISC.search(tag)) else "O" for tag in tags]
        if others := sorted({tag for tag in tags if not is_tag(tag)}):
            raise InputError(f"{path}, column 10: {others[0]!r} is not a tag", "need O, or B- or I- and a type")
    remaining = iter(tags)
    sentences = [
        Sentence(
            tuple(row.columns[layout.word] for row in words),
            tuple(islice(remaining, len(words))),
            group=f"{path}, document {words[0].document}" if words[0].document else "",
        )
        for words in read
    ]
    tagged = to_iob2(sentences, lambda i, j: f"{path}, line {read[i][j].line}, column {column + 1}", path, progress)
    if note := layout.describe(column):
        progress.note(f"{path}: {note}")
    return tagged


def _tag_column(layout: Layout, rows: Sequence[ConllRow], path: str) -> int:
    if layout.n == layout.word + 1:
        raise InputError(f"{path}, line {rows[0].line}: one column, need a word and its tag", _ONE_LINE)
    last = layout.n - 1
    columns = range(layout.word + 1, layout.n)
    tagged = [i for i in columns if all(is_tag(row.columns[i].rstrip()) for row in rows)]
    if layout.begin is not None and layout.n == 4 and tagged == [2, 3]:
        return 2  # GermEval: the outer entities
    if layout.begin is not None and layout.n == 10 and not tagged:
        if not any(_MISC.search(row.columns[9]) for row in rows):
            raise InputError(
                f"{path} seems to be CoNLL-U, without tags in column 10, such as NER=B-PER", "give a file with entities"
            )
        return last
    if len(tagged) > 1 and last not in tagged and all(row.columns[last] != "O" for row in rows):
        numbers = " and ".join(str(i + 1) for i in tagged)
        raise InputError(f"{path}: columns {numbers} have tags, and the last column has none", _NAME_COLUMNS)
    is_other = len(tagged) == 1 and all(row.columns[last] != "O" for row in rows)
    return tagged[0] if is_other else last


def to_iob2(
    sentences: Sequence[Sentence], where: Callable[[int, int], str], source: str, progress: Progress
) -> list[Sentence]:
    """The sentences of a file with their tags in IOB2, from the scheme that all tags of the file are in.

    If no tag begins with B or I, the tags are types without prefixes (IO), also ``E-mail``: neighbouring words of one
    type are an entity, and a note says so. If then all begin with S, or all with U, they are entities of a word each
    (BIOES, BILOU). ``where(i, j)`` is the location of word j of sentence i; ``InputError`` names it if its tag is none.
    """
    all_tags = {tag for sentence in sentences for tag in sentence.tags or ()}
    types = sorted(all_tags - {"O"})
    wrong = {tag for tag in types if not is_tag(tag)}
    prefixes = {tag[0] for tag in types if tag not in wrong}
    is_io = False
    if types and prefixes.isdisjoint("BI"):
        names = ", ".join(types[:20]) + (" …" if len(types) > 20 else "")
        if not wrong and prefixes in ({"S"}, {"U"}):
            progress.note(f"{source}: the tags are O and {names}: read as entities of a word each (BIOES, BILOU)")
        elif not wrong or ("O" in all_tags and all(types) and not any(map(_IOB_LIKE.fullmatch, wrong))):
            is_io = True
            progress.note(
                f"{source}: no tag begins with B- or I-, so that neighbouring words of a type are an entity; the types "
                f"are {names}"
            )
    if wrong and not is_io:
        i, j, tag = next(
            (i, j, tag) for i, row in enumerate(sentences) for j, tag in enumerate(row.tags or ()) if tag in wrong
        )
        raise InputError(f"{where(i, j)}: {tag!r} is not a tag", _NEED_TAG)

    def convert(tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(iob2(tag if tag == "O" or not is_io else f"I-{tag}" for tag in tags))

    return [replace(sentence, tags=convert(sentence.tags or ())) for sentence in sentences]


def parse_tagged(
    record: Json, where: str, split: Split = "punctuation", counts: Counter[str] | None = None
) -> Sentence:
    """The sentence of an object with ``tokens`` and ``tags`` (or ``ner_tags``), or with ``text`` and the characters of
    its entities: those of doccano, Prodigy and Label Studio, and what ``predict`` writes.

    Tags are in the scheme of the file. Text is split as ``split`` says; ``counts["widened"]`` counts the entities that
    begin or end within a word. Raises ``InputError`` with ``where``, also for entities that overlap or are not in the
    text.
    """
    counts = Counter() if counts is None else counts
    field = next((name for name in _TAG_FIELDS if record.get(name) is not None), None)
    if field is None and isinstance(record.get("text"), str):
        if record.get("answer", "accept") != "accept":
            raise InputError(f"{where}: answer is {record['answer']!r}", "give the accepted examples only")
        if (spans := _spans(record, where)) is not None:
            sentence = split_text(Decoder().replace_surrogates(record["text"], where), split)
            return Sentence(sentence.words, _tags_of(spans, sentence, where, counts), group=_document(record))
    if field is None:
        raise InputError(
            f"{where} has no tags, and no entities",
            'give an object such as {"tokens": ["a", "rash"], "tags": ["O", "B-X"]} or '
            '{"text": "a rash", "label": [[2, 6, "X"]]}',
        )
    words = tokens_of(record, where)
    if "words" in record and isinstance(record.get("entities"), list):  # as predictions with tags have
        raise InputError(f"{where} has both tags and entities", "leave out the one that was not corrected")
    tags = record[field]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InputError(f"{where}: {field} is not a list of strings", _NEED_TAG)
    if len(tags) != len(words):
        raise InputError(f"{where}: {len(words)} tokens and {len(tags)} {field}", "give each token one tag")
    return Sentence(words, tuple(tags), group=_document(record))


def _document(record: Json) -> str:
    return str(next((record[name] for name in _DOCUMENT_FIELDS if record.get(name) is not None), ""))


@dataclass(frozen=True)
class _Span:
    """An entity as characters ``start`` to ``end`` (exclusive) of a text."""

    start: int
    end: int
    type: str
    text: str | None
    """The text that it should have, if known."""


def _spans(record: Json, where: str) -> list[_Span] | None:
    """The entities of a record without repetitions; ``None``: it has no list of them."""
    fields = [name for name in _SPAN_FIELDS if isinstance(record.get(name), list)]
    if len(filled := [name for name in fields if record[name]]) > 1:
        raise InputError(f"{where} has entities in {' and in '.join(filled)}", "leave out all but one")
    if not fields:
        return None
    items = record[(filled or fields)[0]]
    return [*dict.fromkeys(_span(item, f"{where}, entity {i}") for i, item in enumerate(items, start=1))]


def _span(item: Any, where: str) -> _Span:
    if isinstance(item, dict):
        names = (("start", "start_offset"), ("end", "end_offset"), ("type", "label", "labels"))
        start, end, kind = (next((item[name] for name in same if name in item), None) for same in names)
        text = item.get("text")
    else:
        start, end, kind = item if isinstance(item, list) and len(item) == 3 else (None, None, None)
        text = None
    [kind] = kind if isinstance(kind, list) and len(kind) == 1 else [kind]
    if type(start) is not int or type(end) is not int or not isinstance(kind, str) or not kind:
        raise InputError(
            f"{where} has no start, end and type", 'give [0, 4, "X"] or {"start": 0, "end": 4, "type": "X"}'
        )
    return _Span(start, end, kind, text if isinstance(text, str) else None)


def _tags_of(spans: Sequence[_Span], sentence: Sentence, where: str, counts: Counter[str]) -> tuple[str, ...]:
    """The IOB2 tags of the words that ``spans`` touch."""
    text, places = sentence.text or "", sentence.spans or ()
    begins, ends = [begin for begin, _ in places], [end for _, end in places]
    tags, owners = ["O"] * len(places), dict[int, int]()
    for number, span in enumerate(spans, start=1):
        entity = f"{where}: entity {number} ({span.type}, {span.start} to {span.end})"
        stated = text[span.start : span.end]
        if not 0 <= span.start < span.end <= len(text):
            raise InputError(
                f"{entity} is not in the text, which has {pluralize(len(text), 'character')}", "correct it"
            )
        if span.text is not None and span.text != stated:
            raise InputError(
                f"{entity} is {stated!r} there, and {span.text!r} by its own text", "correct one, or leave out its text"
            )
        first, last = bisect_right(ends, span.start), bisect_left(begins, span.end) - 1
        if first > last:
            raise InputError(f"{entity} has no word", "correct it")
        counts["widened"] += text[begins[first] : ends[last]] != stated.strip()
        for word in range(first, last + 1):
            if word in owners:
                raise InputError(
                    f"{entity} shares the word {sentence.words[word]!r} with entity {owners[word]}",
                    "entities cannot overlap: leave out one of them",
                )
            owners[word], tags[word] = number, f"{'B' if word == first else 'I'}-{span.type}"
    return tuple(tags)


def tokens_of(record: Json, where: str) -> tuple[str, ...]:
    """The strings of ``tokens`` or ``words``; raises ``InputError`` with ``where`` for anything else."""
    tokens = next((record[name] for name in _WORD_FIELDS if name in record), None)
    if isinstance(tokens, list):  # those of Prodigy are objects
        tokens = [token.get("text") if isinstance(token, dict) else token for token in tokens]
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        problem = "has no tokens" if tokens is None else "has tokens that are not a list of strings"
        raise InputError(f"{where} {problem}", 'give an object such as {"tokens": ["a", "rash"]}')
    decoder = Decoder()
    return tuple(decoder.replace_surrogates(token, where) for token in tokens)
