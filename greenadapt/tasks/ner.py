"""Named entity recognition: a label for each word, read from the word's first piece."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from scipy.special import softmax

from greenadapt.config import TaskConfig
from greenadapt.corpus.opening import JSON_SUFFIXES, data_suffix, is_hub_id
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, counted, json_kind
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Array, IntArray, offsets_of
from greenadapt.storage.files import Json
from greenadapt.tasks.base import IGNORED, Encoder, Feature, HeadShape, Input, margins
from greenadapt.tasks.conll import (
    Limits,
    Sentence,
    Split,
    cut,
    entities,
    entity_counts,
    entity_f1,
    entity_scores,
    iob2,
    joined,
    read_conll,
    split_text,
    tagged_record,
    tokens_of,
    usual_split,
)
from greenadapt.tasks.records import records
from greenadapt.tokenization.dual_tokenizer import Pieces

X = "X"
_BLOCK = 1024


@dataclass(frozen=True)
class NerTask:
    """Tags of the words of a sentence; ``labels`` are O and a B- and I- of each type that was trained on."""

    labels: tuple[str, ...] = ()
    chunk: int | None = 30
    gold_chunks: bool = False
    x_class: bool = False
    split: Split = "whitespace"
    """How raw text becomes the words that the training data has."""

    name = "ner"
    head = "TokenClassification"
    main = "f1"

    @classmethod
    def of(cls, config: TaskConfig) -> "NerTask":
        """The task before it has seen training examples."""
        return cls(chunk=config.chunk, gold_chunks=config.gold_chunks, x_class=config.x_class)

    @classmethod
    def of_settings(cls, settings: Json) -> "NerTask":
        """The task that ``settings`` are of; other entries than its own are left alone."""
        options = {name: settings[name] for name in ("chunk", "gold_chunks", "x_class", "split")}
        return cls(tuple(settings["labels"]), **options)

    def settings(self) -> Json:
        """See ``Task``."""
        options = {"chunk": self.chunk, "gold_chunks": self.gold_chunks, "x_class": self.x_class, "split": self.split}
        return {"task": self.name, "labels": list(self.labels), **options}

    def head_config(self) -> Json:
        """``id2label`` and ``label2id``; with ``x_class`` the last label is ``X``, of pieces that begin no word."""
        names = (*self.labels, X) if self.x_class else self.labels
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
        return {**labels, "problem_type": None}

    def head_shape(self) -> HeadShape:
        """That of transformers."""
        return HeadShape()

    def read(self, source: str, progress: Progress) -> list[Sentence]:
        """The sentences of a CoNLL file, of JSON lines with ``tokens`` and ``tags``, or of a hub data set, that have
        words.

        Raises ``InputError`` with line and column. Once ``labels`` are known, warns of types that are not among them,
        and raises where none is.
        """
        decoder = Decoder()
        sentences = _labelled(source, decoder, progress)
        kept = [sentence for sentence in sentences if sentence.words]
        if n_empty := len(sentences) - len(kept):
            progress.note(f"{source}: left out {counted(n_empty, 'sentence')} without words")
        if n_replaced := decoder.counts["replaced"]:
            progress.warn(f"{source}: replaced {counted(n_replaced, 'broken UTF-8 sequence')}")
        if self.labels:
            self._check_types(kept, source, progress)
        return kept

    def labels_in(self, examples: Sequence[Sentence]) -> set[str]:
        """The types of entities in ``examples``."""
        return {tag[2:] for example in examples for tag in example.tags or ()} - {""}

    def _check_types(self, examples: Sequence[Sentence], source: str, progress: Progress) -> None:
        """Warn of types in ``examples`` without a label; raises ``InputError`` if none has one."""
        types = self.labels_in(examples)
        if unseen := sorted(types - self._types):
            named = ", ".join(unseen[:5]) + (" …" if len(unseen) > 5 else "")
            if len(unseen) == len(types):
                known = ", ".join(sorted(self._types - {""}))
                raise InputError(
                    f"{source} has no type that a training sentence has: it has {named}, they have {known}",
                    "give files of one task, with the same names of types",
                )
            progress.warn(f"{source} has types that no training sentence has ({named}): they count as missed")

    @property
    def _types(self) -> set[str]:
        return {label[2:] for label in self.labels}

    def example(self, record: str | Json, where: str) -> Sentence:
        """A line of raw text, or an object with ``tokens`` or ``text``, as a sentence; it may have no words.

        The text of ``tokens`` is them joined by single spaces.
        """
        if isinstance(record, str):
            return split_text(record.rstrip("\r\n"), self.split)
        if "tokens" in record:
            return joined(tokens_of(record, where))
        if not isinstance(text := record.get("text"), str):
            what = f"{where}: field text is {json_kind(text)}, not text" if "text" in record else f"{where} has no text"
            raise InputError(what, 'give {"text": "…"} or {"tokens": ["…"]}')
        return split_text(Decoder().without_surrogates(text, where), self.split)

    def fit(self, examples: Sequence[Sentence], progress: Progress) -> "NerTask":
        """The task with the labels and the way of splitting text that ``examples`` have.

        Raises ``InputError`` if no word is part of an entity.
        """
        types = sorted({tag[2:] for example in examples for tag in set(example.tags or ()) if tag != "O"})
        if not types:
            raise InputError(
                f"no word of {len(examples):,} training sentences is part of an entity, nothing to learn",
                "give data with tags such as B-Disease and I-Disease",
            )
        labels = ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))
        return replace(self, labels=labels, split=usual_split(word for one in examples for word in one.words))

    def training(self, examples: Sequence[Sentence], encoder: Encoder, seed: int, progress: Progress) -> list[Input]:
        """One entry per chunk, cut where no entity goes on; an entity longer than a chunk is cut, with one warning.

        A tag that the task has no label for is not part of the loss.
        """
        made: list[Input] = []
        n_cut = 0
        index = {label: i for i, label in enumerate(self.labels)}
        for read in _read(examples, encoder, self.chunk, by_tags=True):
            targets = np.array([index.get(tag, IGNORED) for tag in read.tags], np.int64)
            for begin, end in read.chunks:
                n_cut += read.tags[begin].startswith("I-")
                base = self._trained_on(read.base, targets, begin, end)
                expanded = base if read.expanded is read.base else self._trained_on(read.expanded, targets, begin, end)
                made.append(Input(base, expanded, end - begin))
        if n_cut:
            limit = f"{encoder.max_length} pieces" + (f" and {self.chunk} words" if self.chunk else "")
            progress.warn(f"entities are longer than a chunk of at most {limit} in {n_cut:,} places: cut there")
        return made

    def _trained_on(self, view: "_View", targets: Array, begin: int, end: int) -> list[Feature]:
        feature = view.feature(begin, end, first_unit=begin)
        target = np.full(len(feature), len(self.labels) if self.x_class else IGNORED, np.int64)
        target[feature.units >= 0] = targets[begin:end]
        return [replace(feature, target=target)]

    def inference(
        self, examples: Iterable[Sentence], encoder: Encoder, counts: Counter[str] | None = None
    ) -> Iterator[Input]:
        """One entry per sentence with one feature per chunk, plain ones but for ``gold_chunks``; a unit is a word.

        No sentence is ever cut, so that nothing is counted.
        """
        for read in _read(examples, encoder, self.chunk, by_tags=self.gold_chunks):
            base = [read.base.feature(begin, end) for begin, end in read.chunks]
            same = read.expanded is read.base
            expanded = base if same else [read.expanded.feature(begin, end) for begin, end in read.chunks]
            yield Input(base, expanded, len(read.base.sizes), read.sentence)

    def in_doubt(self, example: Sentence, logits: Array, margin: float) -> IntArray:
        """The words whose two most probable labels are less than ``margin`` apart."""
        return np.flatnonzero(margins(logits[:, : len(self.labels)]) < margin)

    def decode(self, example: Sentence, logits: Array) -> Json:
        """``tags`` (IOB2) and ``entities`` of a sentence from its logits (n_words, k), the likeliest label a word.

        An entity has its ``first`` and ``last`` word (from 0, inclusive), ``type``, ``score``, the mean probability of
        its words' labels, and, but in labelled files, ``start`` and ``end`` (characters from 0, ``end`` exclusive) and
        ``text``: offsets in the raw text, or in the ``tokens`` joined by single spaces.
        """
        if not example.words:
            return {"tags": [], "entities": []}
        scores = logits[:, : len(self.labels)].astype(np.float64)
        best = scores.argmax(axis=1)
        likelihood = softmax(scores, axis=1).max(axis=1)
        tags = iob2(self.labels[label] for label in best.tolist())
        found: list[Json] = []
        for entity in entities(tags):
            score = float(likelihood[entity.first : entity.last + 1].mean())
            found.append({"first": entity.first, "last": entity.last, "type": entity.type, "score": score})
            if example.spans is not None and example.text is not None:
                start, end = example.spans[entity.first][0], example.spans[entity.last][1]
                found[-1] |= {"start": start, "end": end, "text": example.text[start:end]}
        return {"tags": tags, "entities": found}

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Json]) -> Json:
        """``precision``, ``recall``, ``f1`` and ``support`` of whole entities, and ``by_type`` each; see
        ``entity_scores``.
        """
        return dict(entity_scores(*_tags(examples, predictions)))

    def statistics(self, examples: Sequence[Sentence], predictions: Sequence[Json]) -> Array:
        """(n, 3) float64: true positives, predicted entities, gold entities of each sentence."""
        return entity_counts(*_tags(examples, predictions))

    def main_score(self, sums: Array) -> Array:
        """(…, 3) sums of ``statistics`` → (…) F1 = 2 tp / (predicted + gold), 0 if there is nothing."""
        return entity_f1(sums)


def _labelled(source: str, decoder: Decoder, progress: Progress) -> list[Sentence]:
    if data_suffix(source) in JSON_SUFFIXES or is_hub_id(source):
        return [tagged_record(record, where) for where, record in records(source, progress)]
    return list(read_conll(source, decoder))


def _tags(examples: Sequence[Sentence], predictions: Sequence[Json]) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    return [example.tags or () for example in examples], [prediction["tags"] for prediction in predictions]


@dataclass(frozen=True, eq=False)
class _Read:
    """A sentence in both tokenizations, and the chunks that it is read in: first word, and the one after the last."""

    sentence: Sentence
    base: "_View"
    expanded: "_View"
    tags: tuple[str, ...]
    chunks: list[tuple[int, int]]


def _read(examples: Iterable[Sentence], encoder: Encoder, chunk: int | None, *, by_tags: bool) -> Iterator[_Read]:
    limits = Limits(chunk, encoder.max_length - 2)
    pending = iter(examples)
    while block := list(islice(pending, _BLOCK)):
        encodings = encoder.tokenizer.encode_batch([example.words for example in block])
        for example, encoding in zip(block, encodings, strict=True):
            base = _View.of(encoding.base, encoder)
            expanded = _View.of(encoding.expanded, encoder) if encoder.has_words else base
            tags = example.tags or ()
            sizes = [base.sizes] if expanded is base else [base.sizes, expanded.sizes]
            yield _Read(example, base, expanded, tags, cut(sizes, tags if by_tags and tags else None, limits))


@dataclass(frozen=True, eq=False)
class _View:
    """A sentence in one tokenization: ``ids``, where the pieces of each word begin, ``starts`` (n_words + 1,), and how
    many they are, ``sizes`` (n_words,).
    """

    encoder: Encoder
    ids: IntArray
    starts: IntArray
    sizes: IntArray

    @classmethod
    def of(cls, pieces: Pieces, encoder: Encoder) -> "_View":
        """Without the pieces of a word that are more than the model reads at once."""
        room = encoder.max_length - 2
        ids, given = pieces.ids, pieces.input_words
        assert given is not None
        begins = np.ones(len(ids), bool)
        np.not_equal(given[1:], given[:-1], out=begins[1:])
        starts = np.append(np.flatnonzero(begins), len(ids))
        sizes = starts[1:] - starts[:-1]
        if len(sizes) and sizes.max() > room:
            ids = ids[np.arange(len(ids)) - np.repeat(starts[:-1], sizes) < room]
            sizes = np.minimum(sizes, room)
            starts = offsets_of(sizes)
        return cls(encoder, ids, starts, sizes)

    def feature(self, begin: int, end: int, first_unit: int = 0) -> Feature:
        """The words from ``begin`` up to ``end`` as one input; ``first_unit`` is the word that is unit 0."""
        first, last = self.starts[begin], self.starts[end]
        ids, types, at = self.encoder.single(self.ids[first:last])
        units = np.full(len(ids), -1, np.int32)
        units[self.starts[begin:end] - first + at] = np.arange(begin - first_unit, end - first_unit)
        return Feature(ids, types, units)
