"""Answers to questions as spans of a context of any length, read in windows (Poerner et al. 2020, section 5)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby

import numpy as np

from greenadapt.config import QaConfig, TaskConfig, WordUnit
from greenadapt.errors import InputError, counted
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Array, IntArray
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Encoder, Feature, HeadShape, Input
from greenadapt.tasks.questions import Question, read_questions, unlabelled_question
from greenadapt.tasks.spans import (
    AnswerScores,
    Found,
    best_spans,
    candidates,
    furthest_words,
    normalise,
    ranked,
    score_answer,
    unit_of_each,
    with_carried_ends,
    word_units,
)
from greenadapt.tokenization.dual_tokenizer import Pieces


@dataclass(frozen=True)
class Window:
    """A slice of a context, counted in its pieces: active from ``a_l`` to before ``a_r``, with ``p_l`` pieces of the
    context before it and ``p_r`` after it that are only read.
    """

    a_l: int
    a_r: int
    p_l: int
    p_r: int

    @property
    def begin(self) -> int:
        """First piece that is read."""
        return self.a_l - self.p_l

    @property
    def end(self) -> int:
        """The piece after the last that is read."""
        return self.a_r + self.p_r

    def holds(self, first: int, last: int) -> bool:
        """Whether the pieces ``first`` to ``last``, both included, are all read."""
        return self.begin <= first and last < self.end


def longest_question(max_length: int = 512, n_special: int = 3) -> int:
    """How many pieces of a question leave room for windows of at least one piece."""
    return max_length - n_special - 2


def windows(m: int, q: int, max_length: int = 512, n_special: int = 3) -> list[Window]:
    """The windows of a context of ``m`` pieces behind a question of ``q``.

    ``room = max_length - n_special - q`` pieces of the context are read at once, ``room // 2`` of them active; the
    active slices tile the context. What is left of the room is shared by both sides, an odd piece goes to the right,
    and what one side cannot use to the other (Poerner et al. 2020, section 5). Raises ``InputError`` if the question
    is longer than ``longest_question``.
    """
    room = max_length - n_special - q
    width = room // 2
    if width < 1:
        raise InputError(f"a question of {q} pieces, at most {longest_question(max_length, n_special)} can be read")
    found = []
    for a_l in range(0, m, width):
        a_r = min(m, a_l + width)
        spare = room - (a_r - a_l)
        p_l = min(a_l, max(spare // 2, spare - (m - a_r)))
        found.append(Window(a_l, a_r, p_l, min(m - a_r, spare - p_l)))
    return found


def strided(m: int, q: int, stride: int, max_length: int = 384, n_special: int = 3) -> list[Window]:
    """The windows of BERT's code for SQuAD: one begins every ``stride`` pieces, all read as much as there is room for.

    Each piece is active in the window that has the most context on its poorer side, and a hundredth of a piece more for
    each piece that the window has; of equal ones in the first. A ``stride`` beyond the room would leave pieces out, so
    that the room is the longest. Raises ``InputError`` for a question that leaves no room.
    """
    room = max_length - n_special - q
    if room < 1:
        raise InputError(f"a question of {q} pieces, at most {max_length - n_special - 1} can be read")
    begins = range(0, max(m - room, 0) + min(stride, room), min(stride, room)) if m else ()
    best, owner = np.full(m, -1.0), np.zeros(m, np.int64)
    for number, begin in enumerate(begins):
        n = min(room, m - begin)
        place = np.arange(n)
        context = np.minimum(place, n - 1 - place) + 0.01 * n
        is_better = context > best[begin : begin + n]
        best[begin : begin + n][is_better] = context[is_better]
        owner[begin : begin + n][is_better] = number
    edges = np.searchsorted(owner, np.arange(len(begins) + 1)).tolist()  # the windows' pieces lie end to end
    return [
        Window(a_l, a_r, a_l - begin, min(m, begin + room) - a_r)
        for begin, a_l, a_r in zip(begins, edges, edges[1:], strict=False)
    ]


def merged(found: list[Window]) -> list[Window]:
    """``windows`` with those that read the same pieces as one, active in all their slices.

    The last ones of a context do, and all of one that can be read at once: what a model says of them is the same.
    """
    joined: list[Window] = []
    for window in found:
        if joined and (joined[-1].begin, joined[-1].end) == (window.begin, window.end):
            first = joined.pop()
            window = Window(first.a_l, window.a_r, first.p_l, window.p_r)
        joined.append(window)
    return joined


WORD_UNIT: WordUnit = "punct"
MAX_ANSWER_CHARS = 500
N_BEST = QaConfig.n_best


@dataclass(frozen=True)
class QuestionTask:
    """Extractive question answering.

    Logits of a context are (n_units, 2), start and end of each word. With ``has_null``, after training data that has
    questions without answer, further units follow the words, for the logits of ``[CLS]``: as many as the view of fewer
    windows has windows, neighbouring windows of the other view sharing one, whose higher logit counts. That there is no
    answer has the lowest sum of start and end of them, the lowest over windows as in the usual code for SQuAD 2.
    """

    negatives: int = 2
    """Windows without the answer that each question trains on."""
    has_null: bool = False
    word_unit: WordUnit = WORD_UNIT
    max_answer_chars: int = MAX_ANSWER_CHARS
    null_threshold: float = 0.0
    """Margin by which "no answer" must beat the best answer."""
    stride: int | None = None
    """Pieces between the beginnings of two windows, see ``strided``; ``None``: the windows of ``windows``."""
    max_question: int | None = None
    """Pieces of a question that are read at most; ``None``: as many as there is room for."""
    max_answer_pieces: int | None = None
    """Base pieces of the longest answer; ``None``: any number."""

    @property
    def name(self) -> str:
        """``qa``."""
        return "qa"

    @property
    def head(self) -> str:
        """``QuestionAnswering``."""
        return "QuestionAnswering"

    @property
    def main(self) -> str:
        """``f1``."""
        return "f1"

    @classmethod
    def of(cls, config: TaskConfig) -> "QuestionTask":
        """The task that a configuration describes."""
        return cls(
            config.negatives,
            stride=config.stride,
            max_question=config.max_question,
            max_answer_pieces=config.max_answer_pieces,
        )

    @classmethod
    def of_settings(cls, settings: Json) -> "QuestionTask":
        """The task that ``settings`` came from; other entries than its own are left alone."""
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})

    def settings(self) -> Json:
        """The task's name and fields, but those that are ``None``."""
        return {"task": self.name, **{name: value for name, value in asdict(self).items() if value is not None}}

    def head_config(self) -> Json:
        """Two outputs, whatever the pretrained model's configuration has."""
        return {"num_labels": 2, "problem_type": None}

    def head_shape(self) -> HeadShape:
        """That of transformers."""
        return HeadShape()

    def read(self, source: str, progress: Progress) -> list[Question]:
        """The questions of a file or data set, see ``read_questions``."""
        return read_questions(source, progress)

    def example(self, record: str | Json, where: str) -> Question:
        """The question of a JSON object; raises ``InputError`` for a line of text, which has no context."""
        if isinstance(record, str):
            raise InputError(f"{where} is text, not a JSON object", 'need {"question": "…", "context": "…"}')
        return unlabelled_question(record, where)

    def labels_in(self, examples: Sequence[Question]) -> set[str]:
        """None: answers are parts of the text."""
        return set()

    def fit(self, examples: Sequence[Question], progress: Progress) -> "QuestionTask":
        """This task, with ``has_null`` if there are questions without answer.

        Raises ``InputError`` if no question has an answer.
        """
        if all(question.impossible for question in examples):
            raise InputError(f"none of {len(examples):,} training questions has an answer", "give some that have one")
        return replace(self, has_null=has_impossible(examples))

    def training(self, examples: Sequence[Question], encoder: Encoder, seed: int, progress: Progress) -> list[Input]:
        """All windows that hold the first answer that the context has, and ``negatives`` others, drawn by the seed and
        the question's index, whose target is ``[CLS]``.

        A question without answer has at least one of these. One with an answer that no window holds is left out, and
        how many these are is said. Raises ``InputError`` if nothing is left.
        """
        found: list[Input] = []
        cut: list[str] = []
        with progress.bar("windows", len(examples), "questions") as bar:
            for index, (question, both) in enumerate(self._both(examples, encoder, cut.append)):
                drawn = [one.training(question, self.negatives, [seed, index]) for one in both]
                if all(drawn):
                    found.append(Input(drawn[0], drawn[-1], both[0].n_units))
                bar.advance(1)
        if cut:
            limit = "the model cannot read at once" if self.max_question is None else "are too long"
            progress.warn(f"cut {counted(len(cut), 'question')} that {limit}, the first {cut[0]}")
        if len(found) < len(examples):
            skipped = len(examples) - len(found)
            progress.warn(f"{skipped:,} of {len(examples):,} questions are left out: no window holds an answer")
        if not found:
            raise InputError(f"nothing to train on: no window holds an answer to any of {len(examples):,} questions")
        return found

    def inference(
        self, examples: Iterable[Question], encoder: Encoder, counts: Counter[str] | None = None
    ) -> Iterator[Input]:
        """All windows of each question's context; a question that leaves no room for one is cut, and counted."""
        counted = Counter() if counts is None else counts
        for question, both in self._both(examples, encoder, lambda _: counted.update(["cut"])):
            features = [[one.feature(window) for window in one.windows] for one in both]
            yield Input(features[0], features[-1], both[0].n_units, question)

    def in_doubt(self, example: Question, logits: Array, margin: float) -> IntArray:
        """The words of the answers, of the ``N_BEST`` best, whose probability is less than ``margin`` from the first's,
        if they are several; "no answer" may be one, which has no words.
        """
        best = ranked(self.found(example, logits), self.null_threshold)
        near = [one.candidate for one in best if abs(best[0].score - one.score) < margin]
        starts = word_units(example.context, self.word_unit)[:, 0] if example.words is None else example.words[:, 0]
        places = [(one.start, one.end) for one in near if one.start is not None and one.end is not None]
        if len(near) < 2 or not places:
            return np.arange(0)
        return np.unique(np.concatenate([np.arange(*np.searchsorted(starts, place)) for place in places]))

    def decode(self, example: Question, logits: Array) -> Json:
        """The best answer: ``answer``, its characters ``start`` to before ``end`` (``None`` if there is no answer),
        ``logit``, and ``score``, its probability among the ``N_BEST`` best.
        """
        return {"id": example.id, **self.answers(example, logits)[0]}

    def answers(self, example: Question, logits: Array, n_best: int = N_BEST) -> list[Json]:
        """The ``n_best`` spans of different text and, with ``has_null``, "no answer", best first, each as in ``decode``
        without ``id``.

        ``score`` is the softmax over them. A context without any possible
        answer has the empty one, with ``score`` 0.
        """
        found = ranked(self.found(example, logits, n_best), self.null_threshold)
        return [one.candidate.as_dict(one.score) for one in found]

    def found(self, example: Question, logits: Array, n_best: int = N_BEST) -> Found:
        """The ``n_best`` spans of different text by the ``logits`` of a context's units, (n_units, 2); from those
        of a paragraph that a search found, its ``penalty`` is subtracted.
        """
        units = word_units(example.context, self.word_unit) if example.words is None else example.words
        words = with_carried_ends(units, logits[: len(units)])
        spans = best_spans(units, words, self.max_answer_chars, self._last_words(example))
        null = logits[len(units) :].astype(np.float64).sum(axis=1)
        null = null[np.isfinite(null)]
        penalty = example.passage.penalty if example.passage else 0.0
        best = (replace(one, logit=one.logit - penalty) for one in candidates(example.context, units, spans, n_best))
        return Found(tuple(best), float(null.min()) if self.has_null and len(null) else None)

    def _last_words(self, example: Question) -> IntArray | None:
        if self.max_answer_pieces is None:
            return None
        if example.sizes is None:
            raise InputError(
                f"answers have at most {self.max_answer_pieces} pieces, and logits in files do not tell words' pieces",
                "read the questions with the models themselves",
            )
        return furthest_words(example.sizes, self.max_answer_pieces)

    def score(self, examples: Sequence[Question], predictions: Sequence[Json]) -> Json:
        """``em``, ``f1`` and ``substr``; if there are questions without answer also those of either kind alone, as
        ``has_answer`` and ``no_answer``. ``questions`` is how many there are.
        """
        scores = _scores(examples, predictions)
        kinds = {"": scores}
        if has_impossible(examples):
            for name, wanted in (("has_answer", False), ("no_answer", True)):
                pairs = zip(examples, scores, strict=True)
                kinds[name] = [score for question, score in pairs if question.impossible == wanted]
        described = {
            name: {**asdict(AnswerScores.mean(part)), "questions": len(part)} for name, part in kinds.items() if part
        }
        return {**described.pop("", {}), **described}

    def statistics(self, examples: Sequence[Question], predictions: Sequence[Json]) -> Array:
        """(n_examples, 2) float64: F1 and 1."""
        return np.array([[one.f1, 1.0] for one in _scores(examples, predictions)]).reshape(-1, 2)

    def main_score(self, sums: Array) -> Array:
        """(…, 2) sums of ``statistics`` → (…) mean F1."""
        mean: Array = sums[..., 0] / sums[..., 1]
        return mean

    def _both(
        self, questions: Iterable[Question], encoder: Encoder, cut: Callable[[str], None]
    ) -> Iterator[tuple[Question, "list[_View]"]]:
        """Each question in both tokenizations, or in the one there is; ``cut`` gets the id of each that was cut."""
        room = longest_question(encoder.max_length, encoder.n_special_pair)
        room = room if self.max_question is None else min(room, self.max_question)
        for text, group in groupby(questions, key=lambda question: question.context):
            units = word_units(text, self.word_unit)
            context = encoder.tokenizer.encode(text)
            views = (context.base, context.expanded) if encoder.has_words else (context.base,)
            parts = [_Context(encoder, view, unit_of_each(view.spans[:, 0], units), self.stride) for view in views]
            base = parts[0].units
            sizes = np.bincount(base[base >= 0], minlength=len(units))
            for question in group:
                asked = encoder.tokenizer.encode(question.question)
                ids = [asked.base.ids, asked.expanded.ids][: len(parts)]
                if max(map(len, ids)) > room:
                    cut(question.id)
                both = [_View.of(part, one[:room], len(units)) for part, one in zip(parts, ids, strict=True)]
                n_null = min(len(one.windows) for one in both) if self.has_null else 0
                yield replace(question, words=units, sizes=sizes), [replace(one, n_null=n_null) for one in both]


@dataclass(frozen=True, eq=False)
class _Context:
    """A context in one tokenization, and which of its words each piece (m,) belongs to."""

    encoder: Encoder
    pieces: Pieces
    units: IntArray
    stride: int | None = None

    def windows(self, q: int) -> list[Window]:
        """Those behind a question of ``q`` pieces."""
        m, length, n_special = len(self.units), self.encoder.max_length, self.encoder.n_special_pair
        if self.stride is None:
            return merged(windows(m, q, length, n_special))
        return strided(m, q, self.stride, length, n_special)


@dataclass(frozen=True, eq=False)
class _View:
    """A question, its context, and the windows of it, in one tokenization."""

    context: _Context
    question: IntArray
    windows: list[Window]
    n_words: int
    n_null: int = 0
    """Units after the words, for the logits of "no answer"."""

    @classmethod
    def of(cls, context: _Context, question: IntArray, n_words: int) -> "_View":
        return cls(context, question, context.windows(len(question)) or [Window(0, 0, 0, 0)], n_words)

    @property
    def n_units(self) -> int:
        return self.n_words + self.n_null

    def feature(self, window: Window) -> Feature:
        """The model's input for one window; units are the words of active pieces, and after them [CLS]."""
        pieces = self.context.pieces.ids[window.begin : window.end]
        ids, types, begin = self.context.encoder.pair(self.question, pieces)
        units = np.full(len(ids), -1, np.int32)
        active = begin + window.p_l
        units[active : active + window.a_r - window.a_l] = self.context.units[window.a_l : window.a_r]
        if self.n_null:
            units[0] = self.n_words + bisect_left(
                self.windows, window.a_l, key=lambda one: one.a_l
            ) * self.n_null // len(self.windows)
        return Feature(ids, types, units)

    def trained_on(self, window: Window, answer: tuple[int, int] | None) -> Feature:
        """The same with a target, the first and last piece of an ``answer`` in the context, or [CLS] for ``None``.

        Units are all words that are read whole, and after the last of the context [CLS].
        """
        feature, words = self.feature(window), self.context.units
        read = words[window.begin : window.end]
        begin = len(feature) - 1 - len(read)
        units = np.full(len(feature), -1, np.int32)
        units[begin:-1] = read
        for beyond in (window.begin - 1, window.end):
            if 0 <= beyond < len(words):
                units[units == words[beyond]] = -1
        units[0] = self.n_words
        target = (0, 0) if answer is None else [piece + begin - window.begin for piece in answer]
        return replace(feature, units=units, target=np.array(target, np.int64))

    def training(self, question: Question, negatives: int, seed: list[int]) -> list[Feature]:
        """The windows to train on, none where no window holds an answer that should be there."""
        first, last = self._answer(question)
        holding = [window for window in self.windows if not question.impossible and window.holds(first, last)]
        if not holding and not question.impossible:
            return []
        others = [window for window in self.windows if window not in holding]
        n_others = min(len(others), max(negatives, 1 if question.impossible else 0))
        drawn = np.random.default_rng(seed).permutation(len(others))[:n_others]
        features = [self.trained_on(window, (first, last)) for window in holding]
        return features + [self.trained_on(others[i], None) for i in sorted(drawn.tolist())]

    def _answer(self, question: Question) -> tuple[int, int]:
        """First and last piece of the first answer that the context has; pieces that no window holds where none is."""
        spans = self.context.pieces.spans
        for answer in question.answers:
            text = answer.text.strip()
            start = answer.start + answer.text.index(text) if text else -1
            if answer.start >= 0:
                # A piece that is but the space before a word has an empty span at the word's begin.
                first = int(min(np.searchsorted(spans[:, 1], start, "right"), np.searchsorted(spans[:, 0], start)))
                last = int(np.searchsorted(spans[:, 0], start + len(text), "left")) - 1
                if first <= last:
                    return first, last
        return -1, -1


def gold_texts(question: Question, *, is_second: bool) -> list[str]:
    """The gold answers that count; those of nothing but articles and punctuation do not in SQuAD 2, ``is_second``, as
    its scorer has it; that of version 1 does count them.
    """
    return [one.text for one in question.answers if not is_second or normalise(one.text)]


def has_impossible(questions: Iterable[Question]) -> bool:
    """Whether questions are as in SQuAD 2: some have no answer. The version that a file names does not matter."""
    return any(question.impossible for question in questions)


def _scores(examples: Sequence[Question], predictions: Sequence[Json]) -> list[AnswerScores]:
    is_second = has_impossible(examples)
    golds = [gold_texts(question, is_second=is_second) for question in examples]
    return [
        score_answer(str(one["answer"]), gold, is_second=is_second)
        for one, gold in zip(predictions, golds, strict=True)
    ]
