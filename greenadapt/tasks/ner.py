"""Named entity recognition: a label for each word, predicted at the word's first piece."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

import numpy as np

from greenadapt.config import Decoding
from greenadapt.corpus.opening import JSON_SUFFIXES, data_suffix, is_hub_id
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, json_kind, pluralize
from greenadapt.progress import Progress
from greenadapt.store.arrays import Array, IntArray, offsets_of
from greenadapt.store.files import Json
from greenadapt.tasks.base import IGNORED, Encoder, Feature, HeadShape, Item, margins, require_numbers
from greenadapt.tasks.conll import (
    Sentence,
    Split,
    entities,
    entity_counts,
    entity_f1,
    entity_scores,
    find_most_probable,
    guess_split,
    iob2,
    join_words,
    parse_tagged,
    read_conll,
    split_sentence,
    split_text,
    to_iob2,
    tokens_of,
)
from greenadapt.tasks.records import records
from greenadapt.tokenization.dual_tokenizer import Pieces

X = "X"
_BLOCK = 1024
_NO_PIECES = -1e9
"""In place of -inf, the logits of a word without pieces: any label, as the words around it want."""


@dataclass(frozen=True)
class NerTask:
    """Tagging of the words of a sentence; ``labels`` are O, and B- and I- of each entity type in the training data."""

    labels: tuple[str, ...] = ()
    chunk: int | None = 30
    gold_chunks: bool = False
    x_class: bool = False
    decoding: Decoding = "argmax"
    """Whether the labels of a sentence are its most probable ones in IOB2, or those of each word alone."""
    split: Split = "whitespace"
    """How raw text is split into words like those of the training data."""
    columns: tuple[str, ...] = ()
    """The names of the columns of CoNLL files, see ``conll_sentences``; empty: the files show them."""

    name = "ner"
    head = "TokenClassification"
    main = "f1"
    head_shape = HeadShape()

    def settings(self) -> Json:
        """See ``Task``."""
        return {"task": self.name, **asdict(self), "labels": list(self.labels), "columns": list(self.columns)}

    def head_config(self) -> Json:
        """``id2label`` and ``label2id``; with ``x_class`` the last label is ``X``, for pieces that do not begin a
        word.
        """
        names = (*self.labels, X) if self.x_class else self.labels
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
        return {**labels, "problem_type": None}

    def read(self, source: str, progress: Progress) -> list[Sentence]:
        """The non-empty sentences of a CoNLL file (``read_conll``), or of JSON lines or a hub data set
        (``parse_tagged``), in IOB2.

        Raises ``InputError`` with line and column. After ``fit``, warns if there are no entities, or types without a
        label, and raises ``InputError`` if none has one.
        """
        decoder, counts = Decoder(), Counter[str]()
        if data_suffix(source) in JSON_SUFFIXES or is_hub_id(source):
            split = self.split if self.labels else "punctuation"
            rows = [(where, parse_tagged(record, where, split, counts)) for where, record in records(source, progress)]
            tagged = [sentence for _, sentence in rows]
            sentences = to_iob2(tagged, lambda i, j: f"{rows[i][0]}, tag {j + 1}", source, progress)
        else:
            sentences = read_conll(source, decoder, progress, self.columns)
        if n_widened := counts["widened"]:
            places = pluralize(n_widened, "entity begins or ends", "entities begin or end")
            progress.note(f"{source}: {places} within a word: taken as whole words")
        examples = [sentence for sentence in sentences if sentence.words]
        if n_empty := len(sentences) - len(examples):
            progress.note(f"{source}: left out {pluralize(n_empty, 'sentence')} without words")
        if n_replaced := decoder.counts["replaced"]:
            progress.warn(f"{source}: replaced {pluralize(n_replaced, 'broken UTF-8 sequence')}")
        if self.labels:
            self._check_types(examples, source, progress)
        return examples

    def _types_in(self, examples: Sequence[Sentence]) -> set[str]:
        """The entity types in ``examples``."""
        return {tag[2:] for example in examples for tag in example.tags or ()} - {""}

    def _check_types(self, examples: Sequence[Sentence], source: str, progress: Progress) -> None:
        """Warn of ``examples`` without entities, and of types without a label; ``InputError`` if none has one."""
        types, known = self._types_in(examples), {label[2:] for label in self.labels} - {""}
        if examples and not types:
            progress.warn(f"{source} has no entities, only O: precision, recall and F1 are 0, whatever is predicted")
        if unseen := sorted(types - known):
            unseen_names = ", ".join(unseen[:5]) + (" …" if len(unseen) > 5 else "")
            if len(unseen) == len(types):
                raise InputError(
                    f"{source} has no type that a training sentence has: it has {unseen_names}, they have "
                    f"{', '.join(sorted(known))}",
                    "give files of one task, with the same names of types",
                )
            progress.warn(f"{source} has types that no training sentence has ({unseen_names}): they count as missed")

    def example(self, record: str | Json, where: str) -> Sentence:
        """The sentence, which may be empty, of a line of raw text, or of an object with ``tokens`` or ``text``.

        The text of ``tokens`` is the tokens joined by single spaces.
        """
        if isinstance(record, str):
            return split_text(record.rstrip("\r\n"), self.split)
        if "tokens" in record or ("words" in record and "text" not in record):
            return join_words(tokens_of(record, where))
        if not isinstance(text := record.get("text"), str):
            problem = f": field text is {json_kind(text)}, not text" if "text" in record else " has no text"
            raise InputError(f"{where}{problem}", 'give {"text": "…"} or {"tokens": ["…"]}')
        return split_text(Decoder().replace_surrogates(text, where), self.split)

    def fit(self, examples: Sequence[Sentence], progress: Progress) -> "NerTask":
        """The task with the labels of ``examples``, and with the way their text was split.

        Raises ``InputError`` if no word is part of an entity.
        """
        types = sorted(self._types_in(examples))
        if not types:
            raise InputError(
                f"no word of {len(examples):,} training sentences is part of an entity, nothing to learn",
                "give data with tags such as B-Disease and I-Disease",
            )
        labels = ("O", *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))
        return replace(self, labels=labels, split=guess_split(word for example in examples for word in example.words))

    def training(self, examples: Sequence[Sentence], encoder: Encoder, seed: int, progress: Progress) -> list[Item]:
        """An input per chunk. Chunks do not split entities, except for entities longer than a chunk, with a warning.

        The loss ignores tags without a label.
        """
        inputs: list[Item] = []
        n_cut = 0
        index = {label: i for i, label in enumerate(self.labels)}
        no_label = len(self.labels) if self.x_class else IGNORED

        def with_target(feature: Feature, targets: Array, first: int) -> Feature:
            target = np.full(len(feature), no_label, np.int64)
            is_first = feature.units >= 0
            target[is_first] = targets[feature.units[is_first]]
            return replace(feature, units=np.where(is_first, feature.units - first, -1), target=target)

        for sentence in self._sentences(examples, encoder, by_tags=True):
            tags = sentence.example.tags
            targets = np.array([index.get(tag, IGNORED) for tag in tags], np.int64)
            for chunk, expanded_chunk in zip(sentence.base, sentence.expanded, strict=True):
                first = int(chunk.units[1])  # after [CLS]
                n_cut += tags[first].startswith("I-")
                base = [with_target(chunk, targets, first)]
                expanded = base if expanded_chunk is chunk else [with_target(expanded_chunk, targets, first)]
                inputs.append(Item(base, expanded, int(base[0].units.max()) + 1))
        if n_cut:
            limit = f"{encoder.max_length} pieces" + (f" and {self.chunk} words" if self.chunk else "")
            progress.warn(f"entities are longer than a chunk of at most {limit} in {n_cut:,} places: cut there")
        return inputs

    def inference(
        self, examples: Iterable[Sentence], encoder: Encoder, counts: Counter[str] | None = None
    ) -> Iterator[Item]:
        """An input per sentence with a feature per chunk, whose units are words; only with ``gold_chunks`` do the gold
        tags decide where chunks end.

        Sentences are never truncated, so ``counts`` does not change.
        """
        return self._sentences(examples, encoder, by_tags=self.gold_chunks)

    def _sentences(self, examples: Iterable[Sentence], encoder: Encoder, *, by_tags: bool) -> Iterator[Item]:
        """An input per sentence with a feature per chunk; ``by_tags``: chunks do not split entities."""
        room = encoder.max_length - 2
        remaining = iter(examples)
        while block := list(islice(remaining, _BLOCK)):
            encodings = encoder.tokenizer.encode_batch([example.words for example in block])
            for example, encoding in zip(block, encodings, strict=True):
                pieces = [encoding.base, encoding.expanded] if encoder.has_words else [encoding.base]
                views = [_View.of(view, room) for view in pieces]
                tags = example.tags or None
                chunks = split_sentence([view.sizes for view in views], tags if by_tags else None, self.chunk, room)
                features = [[view.feature(encoder, *chunk) for chunk in chunks] for view in views]
                yield Item(features[0], features[-1], len(example.words), example)

    def uncertain_units(self, example: Sentence, logits: Array, margin: float) -> IntArray:
        """The words for which the probabilities of the two best labels differ by less than ``margin``."""
        return np.flatnonzero(margins(logits[:, : len(self.labels)]) < margin)

    def decode(self, example: Sentence, logits: Array) -> Json:
        """``tags`` (IOB2), ``entities`` and ``score`` of a sentence from its logits (n_words, k).

        The tags are those of ``find_most_probable``, or the most probable label of each word.

        The score is the lowest probability of a word's label, 1 for a sentence without pieces. An entity has its
        ``first`` and ``last`` word (from 0, inclusive), ``type``, and ``score``, the mean probability of its words'
        labels. Outside of labelled files it also has ``text`` and its ``start`` and ``end`` (characters from 0, ``end``
        exclusive) in the raw text, or in the ``tokens`` joined by single spaces.
        """
        from scipy.special import softmax

        if not example.words:
            return {"tags": [], "entities": [], "score": 1.0}
        require_numbers(logits)
        scores = np.maximum(logits[:, : len(self.labels)].astype(np.float64), _NO_PIECES)
        best = find_most_probable(scores, self.labels) if self.decoding == "viterbi" else scores.argmax(axis=1)
        tags = iob2(self.labels[label] for label in best.tolist())
        likelihood = softmax(scores, axis=1)[np.arange(len(best)), best]
        rows: list[Json] = []
        for entity in entities(tags):
            score = float(likelihood[entity.first : entity.last + 1].mean())
            rows.append({"first": entity.first, "last": entity.last, "type": entity.type, "score": score})
            if example.spans is not None and example.text is not None:
                start, end = example.spans[entity.first][0], example.spans[entity.last][1]
                rows[-1] |= {"start": start, "end": end, "text": example.text[start:end]}
        has_pieces = np.isfinite(logits).any(axis=1)
        return {"tags": tags, "entities": rows, "score": float(likelihood[has_pieces].min(initial=1.0))}

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Json]) -> Json:
        """``precision``, ``recall``, ``f1`` and ``support`` of entities, in total and ``by_type``, see
        ``entity_scores``.
        """
        return dict(entity_scores(*_tags(examples, predictions)))

    def statistics(self, examples: Sequence[Sentence], predictions: Sequence[Json]) -> Array:
        """(n, 3) float64: true positives, predicted entities, gold entities of each sentence."""
        return entity_counts(*_tags(examples, predictions))

    def main_score(self, sums: Array) -> Array:
        """(…, 3) sums of ``statistics`` → (…) F1 = 2 tp / (predicted + gold), 0 if both are 0."""
        return entity_f1(sums)


def _tags(examples: Sequence[Sentence], predictions: Sequence[Json]) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    return [example.tags or () for example in examples], [prediction["tags"] for prediction in predictions]


@dataclass(frozen=True, eq=False)
class _View:
    """A sentence in one tokenization: ``ids``, the index of the first piece of each word, ``starts`` (n_words + 1,),
    and the number of pieces of each word, ``sizes`` (n_words,).
    """

    ids: IntArray
    starts: IntArray
    sizes: IntArray

    @classmethod
    def of(cls, pieces: Pieces, room: int) -> "_View":
        """The view of ``pieces``, where words of more than ``room`` pieces are truncated."""
        ids, word_numbers = pieces.ids, pieces.input_words
        assert word_numbers is not None
        begins = np.ones(len(ids), bool)
        np.not_equal(word_numbers[1:], word_numbers[:-1], out=begins[1:])
        starts = np.append(np.flatnonzero(begins), len(ids))
        sizes = starts[1:] - starts[:-1]
        if len(sizes) and sizes.max() > room:
            ids = ids[np.arange(len(ids)) - np.repeat(starts[:-1], sizes) < room]
            sizes = np.minimum(sizes, room)
            starts = offsets_of(sizes)
        return cls(ids, starts, sizes)

    def feature(self, encoder: Encoder, begin: int, end: int) -> Feature:
        """The words from ``begin`` to before ``end`` as an input, whose units are their indices in the sentence."""
        first, last = self.starts[begin], self.starts[end]
        ids, types, begin_piece = encoder.single(self.ids[first:last])
        units = np.full(len(ids), -1, np.int32)
        units[self.starts[begin:end] - first + begin_piece] = np.arange(begin, end)
        return Feature(ids, types, units)
