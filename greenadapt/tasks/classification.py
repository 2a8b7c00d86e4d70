"""Classification of a text or of a pair of texts, into classes or as a number, and its scores."""

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Self

import numpy as np

from greenadapt.config import LabelKind, TableFormat
from greenadapt.errors import InputError, json_kind
from greenadapt.progress import Progress
from greenadapt.store.arrays import Array, IntArray
from greenadapt.store.files import Json
from greenadapt.tasks import records
from greenadapt.tasks.base import Encoder, Feature, HeadShape, Item, margins, require_numbers
from greenadapt.tasks.records import sort_naturally

_CONSTANT = 1e-13
"""A variance below this share of the mean square is a rounding error."""


def class_scores(gold: Sequence[str], predicted: Sequence[str]) -> Json:
    """``macro_f1``, ``micro_f1``, ``accuracy``, ``mcc`` (Matthews' correlation, 0 if there is only one class), and
    ``by_class``: precision, recall, F1 and support of each class in ``gold`` or ``predicted``, of which ``macro_f1`` is
    the mean. Micro F1 is the accuracy, as each text has one class.

    All are scikit-learn's; a precision or recall of 0/0 is 0.
    """
    from sklearn.metrics import accuracy_score, matthews_corrcoef, precision_recall_fscore_support

    classes = sort_naturally({*gold, *predicted})
    by_class = precision_recall_fscore_support(gold, predicted, labels=classes, zero_division=0)
    names = ("precision", "recall", "f1", "support")
    accuracy = float(accuracy_score(gold, predicted))
    return {
        "macro_f1": float(np.mean(by_class[names.index("f1")])),
        "micro_f1": accuracy,
        "accuracy": accuracy,
        "mcc": float(matthews_corrcoef(gold, predicted)) if len(classes) > 1 else 0.0,
        "by_class": {
            label: dict(zip(names, (value.item() for value in values), strict=True))
            for label, *values in zip(classes, *by_class, strict=True)
        },
    }


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> Json:
    """``pearson`` and ``spearman`` (scipy's; ``None`` where one side is constant), and ``mse`` (mean squared error)."""
    from scipy import stats

    scores: Json = {"pearson": None, "spearman": None, "mse": float(np.mean(np.subtract(gold, predicted) ** 2))}
    if len(gold) < 2:
        return scores
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        for name, correlation in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            value = float(correlation(gold, predicted).statistic)
            scores[name] = value if np.isfinite(value) else None
    return scores


def class_counts(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Array:
    """Indicators of the class that each example was correctly assigned, its gold class, and its predicted class:
    (n, 3 * classes) float64.

    The classes are ``labels``, which include all of ``predicted``, and then those that only ``gold`` has.
    """
    classes = {label: i for i, label in enumerate([*labels, *sort_naturally({*gold} - {*labels})])}
    gold_ids, predicted_ids = (np.asarray([classes[label] for label in names], np.int64) for names in (gold, predicted))
    counts = np.zeros((len(gold_ids), 3, len(classes)))
    examples = np.arange(len(gold_ids))
    counts[examples, 0, gold_ids] = gold_ids == predicted_ids
    counts[examples, 1, gold_ids] = 1
    counts[examples, 2, predicted_ids] = 1
    return counts.reshape(len(gold_ids), -1)


def macro_f1(sums: Array) -> Array:
    """Mean F1 of the classes, (…, 3 * classes) summed ``class_counts`` → (…).

    F1 = 2 TP / (gold + predicted); a class in neither does not count, as in scikit-learn.
    """
    hits, n_gold, n_predicted = np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0)
    n_total = n_gold + n_predicted
    f1: Array = np.divide(2 * hits, n_total, out=np.zeros_like(n_total), where=n_total > 0)
    return np.asarray(f1.sum(-1) / np.maximum((n_total > 0).sum(-1), 1))


def moments(gold: Sequence[float], predicted: Sequence[float]) -> Array:
    """1, x, y, x², y², xy of each example, (n, 6) float64; the mean of ``gold`` is subtracted from x and y, which does
    not change the correlation and avoids cancellation.
    """
    x = np.asarray(gold, np.float64) - np.mean(gold)
    y = np.asarray(predicted, np.float64) - np.mean(gold)
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def pearson(sums: Array) -> Array:
    """Pearson's correlation, (…, 6) summed ``moments`` → (…); 0 if x or y is constant."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    x_variance, y_variance = n * xx - x * x, n * yy - y * y
    varies = (x_variance > _CONSTANT * n * xx) & (y_variance > _CONSTANT * n * yy)
    scale = np.sqrt(np.where(varies, x_variance, 1)) * np.sqrt(np.where(varies, y_variance, 1))
    return np.asarray(np.where(varies, (n * xy - x * y) / scale, 0))


_BLOCK = 256
"""Examples per call of the tokenizer."""
_UNIT = np.zeros(1, np.int32)


@dataclass(frozen=True)
class Text:
    """A text or a pair of texts, and its label as in the file (booleans as ``true`` and ``false``)."""

    text: str
    second: str | None = None
    label: str | float | None = None
    where: str = field(default="", compare=False)
    """File and line, for messages."""


def longest_first(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """The number of pieces to keep of each part of a pair so that both fit into ``room`` pieces.

    The longer part is truncated to the length of the other, then both equally. With an odd ``room`` the longer part,
    or the second of equal parts, keeps one more, as in the tokenizers library.
    """
    if n_first + n_second <= room:
        return n_first, n_second
    shorter = min(n_first, n_second, room // 2)
    return (shorter, room - shorter) if n_first <= n_second else (room - shorter, shorter)


def _feature(parts: list[IntArray], encoder: Encoder, counts: Counter[str]) -> Feature:
    n_pieces = sum(map(len, parts))
    room = encoder.max_length - (2 if len(parts) == 1 else encoder.n_special_pair)
    counts["cut"] += n_pieces > room
    if len(parts) == 1:
        ids, types, _ = encoder.single(parts[0][:room])
    else:
        first, second = parts
        n_first, n_second = longest_first(len(first), len(second), room)
        ids, types, _ = encoder.pair(first[:n_first], second[:n_second])
    return Feature(ids, types, _UNIT)


_MAX_LABELS_IN_MESSAGE = 10
_MAX_CHARACTERS = 40  # of a label in a message
_MAX_PROBABILITIES = 100
"""The number of classes in the ``probabilities`` of a prediction."""

_FIELD = "choose one with finetune --text-field, or two for pairs by giving it twice"
_WITH_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_UPCAST = re.compile(r"(-?[0-9]+)\.0*")
"""A whole number as pandas writes it once a column has had a missing value."""
_MOST_LEVELS = 20
"""Values of whole numbers written as ``1.0`` that are classes; a rating has fewer, what is measured or counted more."""


@dataclass(frozen=True)
class ClassificationTask:
    """Single-label classification by cross entropy, or one number by squared error (``problem_type`` regression).

    A class is the text of a label, ``1`` also where a file has ``1.0``. ``labels`` are the classes in the order of the
    model's outputs, empty before ``fit`` and for numbers. With a ``label_range`` from a to b the model learns
    (x - a) / (b - a) of a number x, and predictions are clipped to the range (as for STS-B, 0 to 5, in arXiv
    1902.02671). Texts are truncated to the model's maximum length, pairs at the end of the longer part, as in
    transformers.
    """

    text_fields: tuple[str, ...] = ("text",)
    label_field: str = "label"
    label_kind: LabelKind = "auto"
    labels: tuple[str, ...] = ()
    label_range: tuple[float, float] | None = None
    table: TableFormat | None = None
    head_layers: int = 1
    head_dropout: float | None = None
    """Dropout in training; ``None``: the model's."""

    name = "classification"
    head = "SequenceClassification"

    @property
    def main(self) -> str:
        """``pearson`` for numbers, else ``macro_f1``; ``fit`` resolves ``auto``."""
        return "pearson" if self._is_regression else "macro_f1"

    @property
    def _is_regression(self) -> bool:
        return self.label_kind == "numbers"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def _names(self) -> dict[str, str]:
        """The class of each spelling; models of earlier versions may have a class ``1.0``."""
        return {_without_fraction(label): label for label in self.labels} | {label: label for label in self.labels}

    def settings(self) -> Json:
        """See ``Task``."""
        settings: Json = json.loads(json.dumps(asdict(self)))  # with lists in place of tuples
        return {"task": self.name, **settings}

    def head_config(self) -> Json:
        """``problem_type`` and the outputs' names; a regression has one output without a meaningful name."""
        if self._is_regression:
            return {"problem_type": "regression", "num_labels": 1}
        return {
            "problem_type": "single_label_classification",
            "num_labels": len(self.labels),
            "id2label": dict(enumerate(self.labels)),
            "label2id": dict(self._numbers),
        }

    @property
    def head_shape(self) -> HeadShape:
        """See ``Task``."""
        return HeadShape(self.head_layers, self.head_dropout)

    def read(self, source: str, progress: Progress) -> list[Text]:
        """The labelled texts of a source that ``records`` reads.

        Warns of empty texts, and after ``fit`` of unseen labels. Raises ``InputError`` with the line of a missing
        field, a text that is not a string, an empty label, or a label that should be a number and is not, or is out of
        range; after ``fit`` also if all labels are unseen.
        """
        rows = records.records(source, progress, self.table)
        texts = [self._text(row, where, self._label(row, where), _FIELD) for where, row in rows]
        if n_empty := sum(not (text.text.strip() or (text.second or "").strip()) for text in texts):
            progress.warn(f"{source}: {n_empty:,} of {len(texts):,} texts are empty")
        if self._is_regression:
            for text in texts:
                self._number(text)
        elif self.labels:
            self._compare_labels(texts, source, progress)
        return texts

    def _compare_labels(self, texts: Sequence[Text], source: str, progress: Progress) -> None:
        unseen = Counter(map(self._class, texts)) - Counter(dict.fromkeys(self.labels, len(texts)))
        if unseen.total() == len(texts):
            raise InputError(
                f"{source}: no text has a label that was learnt, {_list_labels(self.labels)}; they have "
                f"{_list_labels(unseen)}",
                "write labels alike in all files, or name the right field",
            )
        if unseen:
            progress.warn(
                f"{source}: {unseen.total():,} of {len(texts):,} texts have labels that no training example has, "
                f"and count as wrong: {_list_labels(unseen)}"
            )

    def example(self, record: str | Json, where: str) -> Text:
        """A text without a label from a line of text, or a text or pair from a JSON object with the text fields."""
        if not isinstance(record, str):
            return self._text(record, where, None, "name it as in training")
        if len(self.text_fields) == 2:
            first, second = self.text_fields
            raise InputError(
                f"{where} is a line of text, but the model reads pairs",
                f'give JSON lines such as {{"{first}": "…", "{second}": "…"}}',
            )
        return Text(record, where=where)

    def fit(self, examples: Sequence[Text], progress: Progress) -> Self:
        """This task with the training labels, and with a ``label_kind`` of ``auto`` resolved.

        Raises ``InputError`` if there are no examples, a label should be a number and is not, or all labels are equal.
        """
        if not examples:
            raise InputError("there are no training examples", "give a file with labelled texts")
        if self.label_kind == "auto":
            _refuse_decimal_commas(examples)
        task = replace(self, label_kind=_kind(examples)) if self.label_kind == "auto" else self
        if task._is_regression:
            numbers = {task._number(text) for text in examples}
            _check_several(numbers, len(examples))
            kind = f"labels are numbers from {min(numbers)} to {max(numbers)}, learnt by regression"
            is_guess = self.label_kind == "auto" and all(number.is_integer() for number in numbers)
            progress.note(kind + ("; --labels classes learns classes" if is_guess else ""))
            return replace(task, labels=())
        counts = Counter(map(task._class, examples))
        _check_several(counts, len(examples))
        labels = records.sort_naturally(counts)
        classes = f"{len(labels)} classes: {_list_labels({label: counts[label] for label in labels})}"
        is_guess = self.label_kind == "auto" and all(map(_INTEGER.fullmatch, labels))
        upcast = next((str(text.label) for text in examples if is_guess and str(text.label) not in counts), None)
        progress.note(classes + (f"; --labels numbers learns numbers such as {upcast}" if upcast else ""))
        return replace(task, labels=tuple(labels))

    def training(self, examples: Sequence[Text], encoder: Encoder, seed: int, progress: Progress) -> list[Item]:
        """An input per text, whose target is the index of the class or the number; warns of truncated texts.

        Does not depend on ``seed``. Raises ``InputError`` for a label that is not in ``labels``.
        """
        targets, counts = [self._target(text) for text in examples], Counter[str]()
        inputs = []
        for views, target in zip(self.inference(examples, encoder, counts), targets, strict=True):
            base = [replace(feature, target=target) for feature in views.base]
            is_same = views.expanded is views.base
            expanded = base if is_same else [replace(feature, target=target) for feature in views.expanded]
            inputs.append(Item(base, expanded, views.n_units))
        if n_cut := counts["cut"]:
            progress.warn(f"{n_cut:,} of {len(inputs):,} training texts are cut to {encoder.max_length} pieces")
        return inputs

    def inference(
        self, examples: Iterable[Text], encoder: Encoder, counts: Counter[str] | None = None
    ) -> Iterator[Item]:
        """An input per text, in order, streamed in blocks of a few hundred texts.

        ``counts["cut"]`` counts the texts truncated in the base tokenization.
        """
        remaining, counts = iter(examples), Counter() if counts is None else counts
        while block := list(islice(remaining, _BLOCK)):
            parts = [[text.text] if text.second is None else [text.text, text.second] for text in block]
            encoded = iter(encoder.tokenizer.encode_batch(list(chain.from_iterable(parts))))
            for text, part in zip(block, parts, strict=True):
                encodings = list(islice(encoded, len(part)))
                base = [_feature([encoding.base.ids for encoding in encodings], encoder, counts)]
                expanded = base
                if encoder.has_words:
                    expanded = [_feature([encoding.expanded.ids for encoding in encodings], encoder, Counter())]
                yield Item(base, expanded, 1, text)

    def uncertain_units(self, example: Text, logits: Array, margin: float) -> IntArray:
        """The text (0) if the probabilities of its two best classes differ by less than ``margin``; empty for
        numbers.
        """
        return np.flatnonzero(margins(logits) < margin)

    def decode(self, example: Text, logits: Array) -> Json:
        """``label``, ``score`` (its probability) and ``probabilities`` of the 100 most probable classes from logits
        (1, k); for numbers ``value``, in the range of the labels.
        """
        from scipy.special import softmax

        require_numbers(logits)
        if self._is_regression:
            return {"value": self._in_range(float(logits[0, 0]))}
        probabilities = softmax(logits[0].astype(np.float64))
        best = int(logits[0].argmax())
        top = np.sort(np.argsort(-probabilities, kind="stable")[:_MAX_PROBABILITIES])
        return {
            "label": self.labels[best],
            "score": float(probabilities[best]),
            "probabilities": {self.labels[i]: float(probabilities[i]) for i in top},
        }

    def score(self, examples: Sequence[Text], predictions: Sequence[Json]) -> Json:
        """``class_scores`` and ``unseen_labels``, the number of texts whose label no training example has (they count
        as wrong); for numbers ``number_scores``.
        """
        gold, predicted = self._outcomes(examples, predictions)
        if self._is_regression:
            return number_scores(gold, predicted)
        return class_scores(gold, predicted) | {"unseen_labels": sum(label not in self._numbers for label in gold)}

    def statistics(self, examples: Sequence[Text], predictions: Sequence[Json]) -> Array:
        """(n, 3 * classes) ``class_counts``, or (n, 6) ``moments``."""
        gold, predicted = self._outcomes(examples, predictions)
        if self._is_regression:
            return moments(gold, predicted)
        return class_counts(gold, predicted, self.labels)

    def main_score(self, sums: Array) -> Array:
        """(…, m) sums of ``statistics`` → (…) macro F1 or Pearson's correlation (0 where undefined)."""
        return pearson(sums) if self._is_regression else macro_f1(sums)

    def _outcomes(self, examples: Sequence[Text], predictions: Sequence[Json]) -> tuple[list[Any], list[Any]]:
        if self._is_regression:
            return [self._number(text) for text in examples], [prediction["value"] for prediction in predictions]
        return [self._class(text) for text in examples], [prediction["label"] for prediction in predictions]

    def _text(self, row: Json, where: str, label: str | float | None, hint: str) -> Text:
        texts = []
        for name in self.text_fields:
            text = records.field(row, name, where, hint)
            if not isinstance(text, str):
                raise InputError(f"{where}: field {name} is {json_kind(text)}, not text", hint)
            texts.append(text)
        return Text(texts[0], texts[1] if len(texts) == 2 else None, label, where)

    def _label(self, row: Json, where: str) -> str | float:
        label = records.field(row, self.label_field, where, "choose one with finetune --label-field")
        if isinstance(label, bool):
            return str(label).lower()
        is_finite = not isinstance(label, float) or math.isfinite(label)  # JSON's 1e400 is infinite
        if not isinstance(label, str | int | float) or not str(label).strip() or not is_finite:
            kind = json_kind(label) if is_finite else f"{json.dumps(label)}, not a finite number"
            kind = "empty" if isinstance(label, str) else kind
            raise InputError(f"{where}: label field {self.label_field} is {kind}", "give each text one label")
        return label.strip() if isinstance(label, str) else label

    def _class(self, text: Text) -> str:
        if text.label is None:
            raise InputError(f"{text.where or 'a text'} has no label", "give each text one label")
        label = str(text.label)
        name = _without_fraction(label)
        return self._names.get(label) or self._names.get(name, name)

    def _target(self, text: Text) -> Array:
        if self._is_regression:
            low, high = self.label_range or (0.0, 1.0)
            return np.asarray((self._number(text) - low) / (high - low), np.float32)
        label = self._class(text)
        if label not in self._numbers:
            raise InputError(f"{text.where}: label {label} is not one of {_list_labels(self.labels)}")
        return np.asarray(self._numbers[label], np.int64)

    def _in_range(self, output: float) -> float:
        """The prediction in the range of the labels."""
        if self.label_range is None:
            return output
        low, high = self.label_range
        return low + (high - low) * min(max(output, 0.0), 1.0)

    def _number(self, text: Text) -> float:
        value = None if text.label is None else records.parse_number(text.label)
        if value is None:
            raise InputError(
                f"{text.where or 'a text'}: label {text.label} is not a number",
                "give every text a number, or learn classes",
            )
        if self.label_range is not None and not self.label_range[0] <= value <= self.label_range[1]:
            low, high = self.label_range
            raise InputError(
                f"{text.where or 'a text'}: label {text.label} is beyond the range, {low:g} to {high:g}",
                "correct it, or give a wider label-range",
            )
        return value


def _kind(examples: Sequence[Text]) -> LabelKind:
    """``numbers`` if all labels are numbers, and one has a fraction or an exponent, ``1.0`` only among more than 20
    values; else ``classes``.
    """
    labels = {str(text.label) for text in examples if text.label is not None}
    if any(records.parse_number(label) is None for label in labels):
        return "classes"
    names = set(map(_without_fraction, labels))
    is_few = names == labels or len(names) <= _MOST_LEVELS
    return "classes" if is_few and all(map(_INTEGER.fullmatch, names)) else "numbers"


def _refuse_decimal_commas(examples: Sequence[Text]) -> None:
    """Raise ``InputError`` if all labels are numbers, some of them with a decimal comma, such as ``2,5``."""
    labels = dict.fromkeys(str(text.label) for text in examples)
    names = [label for label in labels if records.parse_number(label) is None]
    if names and all(map(_WITH_COMMA.fullmatch, names)):
        raise InputError(
            f"labels are numbers, and {names[0]} has a comma",
            f"write {names[0].replace(',', '.')}, or give --labels classes",
        )


def _check_several(values: Collection[str | float], n_examples: int) -> None:
    if len(values) == 1:
        raise InputError(
            f"all {n_examples:,} training examples have the same label, {next(iter(values))}",
            "give examples of at least two labels, or name another field with --label-field",
        )


def _without_fraction(label: str) -> str:
    """``label`` without the ``.0`` of a whole number."""
    match = _UPCAST.fullmatch(label)
    return match[1] if match else label


def _list_labels(labels: Iterable[str] | Mapping[str, int]) -> str:
    """The first few labels, with their counts if ``labels`` is a mapping."""
    counts = labels if isinstance(labels, Mapping) else {}
    short = ((label, label[:_MAX_CHARACTERS] + "…" * (len(label) > _MAX_CHARACTERS)) for label in labels)
    names = [f"{name} ({counts[label]:,})" if label in counts else name for label, name in short]
    n_more = len(names) - _MAX_LABELS_IN_MESSAGE
    return ", ".join(names[:_MAX_LABELS_IN_MESSAGE]) + (f" and {n_more} more" if n_more > 0 else "")
