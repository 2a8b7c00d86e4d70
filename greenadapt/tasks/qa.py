"""Answers to questions as spans of a context of any length, read in windows (Poerner et al. 2020, section 5)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import attrgetter

import numpy as np

from greenadapt.config import QaConfig, WordUnit
from greenadapt.errors import InputError, pluralize
from greenadapt.progress import Progress
from greenadapt.store.arrays import Array, IntArray
from greenadapt.store.files import Json
from greenadapt.tasks.base import Encoder, Feature, HeadShape, Item
from greenadapt.tasks.questions import Question, parse_unlabelled, read_questions
from greenadapt.tasks.spans import (
    AnswerCandidates,
    AnswerScores,
    candidates,
    carry_ends,
    find_units,
    furthest_words,
    normalise,
    rank,
    rank_spans,
    score_answer,
    word_units,
)
from greenadapt.tokenization.dual_tokenizer import Pieces


@dataclass(frozen=True)
class Window:
    """A slice of a context in pieces: active from ``a_l`` to before ``a_r``, with ``p_l`` pieces before it and ``p_r``
    after it as context only.
    """

    a_l: int
    a_r: int
    p_l: int
    p_r: int

    @property
    def begin(self) -> int:
        """The first piece of the window."""
        return self.a_l - self.p_l

    @property
    def end(self) -> int:
        """The piece after the last of the window."""
        return self.a_r + self.p_r

    def holds(self, first: int, last: int) -> bool:
        """Whether the window has all pieces from ``first`` to ``last``, inclusive."""
        return self.begin <= first and last < self.end


_EMPTY = Window(0, 0, 0, 0)
"""The only window of a context without pieces."""


def longest_question(max_length: int = 512, n_special: int = 3) -> int:
    """The maximum number of pieces of a question that leaves room for active pieces."""
    return max_length - n_special - 2


def windows(m: int, q: int, max_length: int = 512, n_special: int = 3) -> list[Window]:
    """The windows of a context of ``m`` pieces for a question of ``q`` pieces (Poerner et al. 2020, section 5).

    A window has ``room = max_length - n_special - q`` pieces, ``room // 2`` of them active; the active slices tile the
    context. The other pieces are split between both sides, with an odd piece on the right; at the ends of the context,
    what one side cannot use goes to the other. Neighbouring windows of the same pieces, which have the same outputs,
    are one. Raises ``InputError`` if the question is longer than ``longest_question``.
    """
    room = max_length - n_special - q
    width = room // 2
    if width < 1:
        raise InputError(f"a question of {q} pieces, at most {longest_question(max_length, n_special)} can be read")
    result: list[Window] = []
    for a_l in range(0, m, width):
        a_r = min(m, a_l + width)
        spare = room - (a_r - a_l)
        p_l = min(a_l, max(spare // 2, spare - (m - a_r)))
        window = Window(a_l, a_r, p_l, min(m - a_r, spare - p_l))
        if result and (result[-1].begin, result[-1].end) == (window.begin, window.end):
            previous = result.pop()
            window = Window(previous.a_l, a_r, previous.p_l, window.p_r)
        result.append(window)
    return result


def strided_windows(m: int, q: int, stride: int, max_length: int = 384, n_special: int = 3) -> list[Window]:
    """The windows of BERT's code for SQuAD, which begin every ``stride`` pieces and are as long as possible.

    A piece is active in the window where its shorter context is longest, plus 0.01 times the length of the window; on
    ties, in the first such window. A ``stride`` above the length of a window is reduced to it. Raises ``InputError``
    for a question that leaves no room.
    """
    room = max_length - n_special - q
    if room < 1:
        raise InputError(f"a question of {q} pieces, at most {max_length - n_special - 1} can be read")
    begins = range(0, max(m - room, 0) + min(stride, room), min(stride, room)) if m else ()
    best_context, window_of_piece = np.full(m, -1.0), np.zeros(m, np.int64)
    for number, begin in enumerate(begins):
        n = min(room, m - begin)
        positions = np.arange(n)
        context = np.minimum(positions, n - 1 - positions) + 0.01 * n
        is_better = context > best_context[begin : begin + n]
        best_context[begin : begin + n][is_better] = context[is_better]
        window_of_piece[begin : begin + n][is_better] = number
    edges = np.searchsorted(window_of_piece, np.arange(len(begins) + 1)).tolist()  # active slices are consecutive
    return [
        Window(a_l, a_r, a_l - begin, min(m, begin + room) - a_r)
        for begin, a_l, a_r in zip(begins, edges, edges[1:], strict=False)
    ]


N_BEST = QaConfig.n_best


@dataclass(frozen=True)
class QuestionTask:
    """Extractive question answering.

    Logits of a context are (n_units, 2), start and end of each word. With ``has_null``, if the training data has
    questions without answer, the words are followed by units for the logits of ``[CLS]``: one for each window of the
    view with fewer windows. Neighbouring windows of the other view share one, which takes the higher logit. The logit
    of "no answer" is the lowest sum of the start and end logits of these units, as in common code for SQuAD 2.
    """

    negatives: int = 2
    """Windows without the answer to train on, per question."""
    has_null: bool = False
    word_unit: WordUnit = "punct"
    max_answer_chars: int = 500
    null_threshold: float = 0.0
    """Margin by which "no answer" must beat the best answer."""
    stride: int | None = None
    """Pieces between the starts of two windows, see ``strided_windows``; ``None``: as in ``windows``."""
    max_question: int | None = None
    """Maximum number of pieces of a question; ``None``: as many as there is room for."""
    max_answer_pieces: int | None = None
    """Maximum number of base pieces of an answer; ``None``: no limit."""

    name = "qa"
    head = "QuestionAnswering"
    main = "f1"
    head_shape = HeadShape()

    def settings(self) -> Json:
        """The task's name and the fields that are not ``None``."""
        return {"task": self.name, **{name: value for name, value in asdict(self).items() if value is not None}}

    def head_config(self) -> Json:
        """Two outputs, whatever the configuration of the pretrained model has."""
        return {"num_labels": 2, "problem_type": None}

    def read(self, source: str, progress: Progress) -> list[Question]:
        """The questions of a file or data set, see ``read_questions``."""
        return read_questions(source, progress)

    def example(self, record: str | Json, where: str) -> Question:
        """The question of a JSON object; raises ``InputError`` for a line of text, which has no context."""
        if isinstance(record, str):
            raise InputError(f"{where} is text, not a JSON object", 'need {"question": "…", "context": "…"}')
        return parse_unlabelled(record, where)

    def fit(self, examples: Sequence[Question], progress: Progress) -> "QuestionTask":
        """This task, with ``has_null`` if a question has no answer.

        Raises ``InputError`` if no question has an answer.
        """
        if all(question.impossible for question in examples):
            raise InputError(f"none of {len(examples):,} training questions has an answer", "give some that have one")
        return replace(self, has_null=has_impossible(examples))

    def training(self, examples: Sequence[Question], encoder: Encoder, seed: int, progress: Progress) -> list[Item]:
        """All windows with the first gold answer in the context, and ``negatives`` windows without it, which are drawn
        by the seed and the index of the question and have ``[CLS]`` as their target.

        A question without answer has at least one window. Questions with an answer that is in no window are skipped,
        with a warning. Raises ``InputError`` if all are.
        """
        inputs: list[Item] = []
        cut_ids: list[str] = []
        with progress.bar("windows", len(examples), "questions") as bar:
            for index, (question, views) in enumerate(self._views(examples, encoder)):
                cut_ids += [question.id] if any(view.is_cut for view in views) else []
                features = [view.training(question, self.negatives, [seed, index]) for view in views]
                if all(features):
                    inputs.append(Item(features[0], features[-1], views[0].n_units))
                bar.advance(1)
        if cut_ids:
            limit = "the model cannot read at once" if self.max_question is None else "are too long"
            progress.warn(f"cut {pluralize(len(cut_ids), 'question')} that {limit}, the first {cut_ids[0]}")
        if len(inputs) < len(examples):
            skipped = len(examples) - len(inputs)
            progress.warn(f"{skipped:,} of {len(examples):,} questions are left out: no window holds an answer")
        if not inputs:
            raise InputError(f"nothing to train on: no window holds an answer to any of {len(examples):,} questions")
        return inputs

    def inference(
        self, examples: Iterable[Question], encoder: Encoder, counts: Counter[str] | None = None
    ) -> Iterator[Item]:
        """All windows of each question's context; questions that leave no room are truncated, and counted."""
        for question, views in self._views(examples, encoder):
            if counts is not None and any(view.is_cut for view in views):
                counts["cut"] += 1
            features = [[view.feature(window) for window in view.windows] for view in views]
            yield Item(features[0], features[-1], views[0].n_units, question)

    def uncertain_units(self, example: Question, logits: Array, margin: float) -> IntArray:
        """The words of the ``N_BEST`` answers whose probability is less than ``margin`` below the best answer's; empty
        if only the best is. "No answer" counts as an answer without words.
        """
        ranking = rank(self.find_candidates(example, logits), self.null_threshold)
        best_score = ranking[0][1]
        rivals = [candidate for candidate, score in ranking if abs(best_score - score) < margin]
        starts = self._units(example)[:, 0]
        spans = [(answer.start, answer.end) for answer in rivals if answer.start is not None and answer.end is not None]
        if len(rivals) < 2 or not spans:
            return np.arange(0)
        return np.unique(np.concatenate([np.arange(*np.searchsorted(starts, span)) for span in spans]))

    def _units(self, example: Question) -> IntArray:
        return word_units(example.context, self.word_unit) if example.words is None else example.words

    def decode(self, example: Question, logits: Array) -> Json:
        """The best answer: ``answer``, its characters ``start`` to before ``end`` (``None`` for "no answer"),
        ``logit``, and ``score``, its probability among the ``N_BEST`` best answers.
        """
        return {"id": example.id, **self.answers(example, logits)[0]}

    def answers(self, example: Question, logits: Array) -> list[Json]:
        """The ``N_BEST`` spans with different texts and, with ``has_null``, "no answer", best first, as in ``decode``
        but without ``id``.

        ``score`` is the softmax over them. A context without any possible answer has an empty one with ``score`` 0.
        """
        ranking = rank(self.find_candidates(example, logits), self.null_threshold)
        return [candidate.as_dict(score) for candidate, score in ranking]

    def find_candidates(self, example: Question, logits: Array, n_best: int = N_BEST) -> AnswerCandidates:
        """The ``n_best`` spans with different texts by the ``logits`` (n_units, 2) of a context; the ``penalty`` of a
        paragraph of a search is subtracted from their logits.
        """
        units = self._units(example)
        words = carry_ends(units, logits[: len(units)])
        last_words = None
        if self.max_answer_pieces is not None:
            assert example.sizes is not None  # as in every example that was read by a model
            last_words = furthest_words(example.sizes, self.max_answer_pieces)
        spans = rank_spans(units, words, self.max_answer_chars, last_words)
        null = logits[len(units) :].astype(np.float64).sum(axis=1)
        null = null[np.isfinite(null)]
        penalty = example.passage.penalty if example.passage else 0.0
        best = (
            replace(candidate, logit=candidate.logit - penalty)
            for candidate in candidates(example.context, units, spans, n_best)
        )
        return AnswerCandidates(tuple(best), float(null.min()) if self.has_null and len(null) else None)

    def score(self, examples: Sequence[Question], predictions: Sequence[Json]) -> Json:
        """``em``, ``f1``, ``substr`` and the number of ``questions``; if some have no answer, also for either kind
        alone, as ``has_answer`` and ``no_answer``.
        """
        scores = _scores(examples, predictions)
        kinds = {"": scores}
        if has_impossible(examples):
            for name, is_impossible in (("has_answer", False), ("no_answer", True)):
                pairs = zip(examples, scores, strict=True)
                kinds[name] = [score for question, score in pairs if question.impossible == is_impossible]
        described = {
            name: {**asdict(AnswerScores.mean(part)), "questions": len(part)} for name, part in kinds.items() if part
        }
        return {**described.pop("", {}), **described}

    def statistics(self, examples: Sequence[Question], predictions: Sequence[Json]) -> Array:
        """(n_examples, 2) float64: F1 and 1."""
        return np.array([[answer_scores.f1, 1.0] for answer_scores in _scores(examples, predictions)]).reshape(-1, 2)

    def main_score(self, sums: Array) -> Array:
        """(…, 2) sums of ``statistics`` → (…) mean F1."""
        return sums[..., 0] / sums[..., 1]

    def _views(self, questions: Iterable[Question], encoder: Encoder) -> Iterator[tuple[Question, "list[_View]"]]:
        """Each question in both tokenizations, or only in the base tokenization of a model without added words."""
        limits = encoder.max_length, encoder.n_special_pair
        room = longest_question(*limits)
        room = room if self.max_question is None else min(room, self.max_question)
        for text, group in groupby(questions, key=attrgetter("context")):
            on_text = list(group)
            encodings = encoder.tokenizer.encode_batch([text, *(question.question for question in on_text)])
            context, *question_views = [
                [encoding.base, encoding.expanded][: 1 + encoder.has_words] for encoding in encodings
            ]
            units = word_units(text, self.word_unit)
            units_of_view = [find_units(pieces.spans[:, 0], units) for pieces in context]
            sizes = np.bincount(units_of_view[0][units_of_view[0] >= 0], minlength=len(units))
            for question, pieces_of_view in zip(on_text, question_views, strict=True):
                views = []
                for pieces, unit_of_piece, question_pieces in zip(context, units_of_view, pieces_of_view, strict=True):
                    m, ids = len(pieces.ids), question_pieces.ids[:room]
                    if self.stride is None:
                        sequence = windows(m, len(ids), *limits)
                    else:
                        sequence = strided_windows(m, len(ids), self.stride, *limits)
                    is_cut = len(question_pieces.ids) > room
                    views.append(_View(encoder, pieces, unit_of_piece, ids, is_cut, sequence or [_EMPTY], len(units)))
                n_null = min(len(view.windows) for view in views) if self.has_null else 0
                yield replace(question, words=units, sizes=sizes), [replace(view, n_null=n_null) for view in views]


@dataclass(frozen=True, eq=False)
class _View:
    """A question, its context, and the context's windows, in one tokenization; ``context_units`` (m,) is the word of
    each piece of the context.
    """

    encoder: Encoder
    context: Pieces
    context_units: IntArray
    question: IntArray
    is_cut: bool
    """Whether ``question`` is only its beginning."""
    windows: list[Window]
    n_words: int
    n_null: int = 0
    """Units after the words, for the logits of "no answer"."""

    @property
    def n_units(self) -> int:
        return self.n_words + self.n_null

    def feature(self, window: Window) -> Feature:
        """The model's input for a window, without a target; its units are the words of active pieces, and then
        [CLS].
        """
        pieces = self.context.ids[window.begin : window.end]
        ids, types, begin = self.encoder.pair(self.question, pieces)
        units = np.full(len(ids), -1, np.int32)
        active = begin + window.p_l
        units[active : active + window.a_r - window.a_l] = self.context_units[window.a_l : window.a_r]
        if self.n_null:
            number = bisect_left(self.windows, window.a_l, key=attrgetter("a_l"))
            units[0] = self.n_words + number * self.n_null // len(self.windows)
        return Feature(ids, types, units)

    def feature_with_target(self, window: Window, answer: tuple[int, int] | None) -> Feature:
        """The model's input for a window; its target is the first and last piece of ``answer``, or [CLS] for ``None``.

        Its units are the words that are whole in the window, and [CLS], which counts as the word after the last.
        """
        feature, words = self.feature(window), self.context_units
        begin = len(feature) - 1 - (window.end - window.begin)
        units = np.full(len(feature), -1, np.int32)
        units[begin:-1] = words[window.begin : window.end]
        for neighbour in (window.begin - 1, window.end):
            if 0 <= neighbour < len(words):
                units[units == words[neighbour]] = -1
        units[0] = self.n_words
        target = (0, 0) if answer is None else [piece + begin - window.begin for piece in answer]
        return replace(feature, units=units, target=np.array(target, np.int64))

    def training(self, question: Question, negatives: int, seed: list[int]) -> list[Feature]:
        """The windows to train on; empty if the question has an answer that is in no window."""
        first, last = self._answer(question)
        with_answer = [window for window in self.windows if not question.impossible and window.holds(first, last)]
        if not with_answer and not question.impossible:
            return []
        without_answer = [window for window in self.windows if window not in with_answer]
        n_negatives = min(len(without_answer), max(negatives, 1 if question.impossible else 0))
        indices = np.random.default_rng(seed).permutation(len(without_answer))[:n_negatives]
        features = [self.feature_with_target(window, (first, last)) for window in with_answer]
        return features + [self.feature_with_target(without_answer[i], None) for i in sorted(indices.tolist())]

    def _answer(self, question: Question) -> tuple[int, int]:
        """The first and last piece of the first gold answer in the context; (-1, -1), which no window holds, without
        any.
        """
        spans = self.context.spans
        for answer in question.answers:
            text = answer.text.strip()
            start = answer.start + answer.text.index(text) if text else -1
            if answer.start >= 0:
                # A piece that is only the space before a word has an empty span at the start of the word.
                first = int(min(np.searchsorted(spans[:, 1], start, "right"), np.searchsorted(spans[:, 0], start)))
                last = int(np.searchsorted(spans[:, 0], start + len(text), "left")) - 1
                if first <= last:
                    return first, last
        return -1, -1


def gold_texts(question: Question, *, is_second: bool) -> list[str]:
    """The gold answers that are scored; with ``is_second`` without those of only articles and punctuation, as in the
    scorer of SQuAD 2.
    """
    return [answer.text for answer in question.answers if not is_second or normalise(answer.text)]


def has_impossible(questions: Iterable[Question]) -> bool:
    """Whether some questions have no answer, as in SQuAD 2; the version in a file does not matter."""
    return any(question.impossible for question in questions)


def _scores(examples: Sequence[Question], predictions: Sequence[Json]) -> list[AnswerScores]:
    is_second = has_impossible(examples)
    golds = [gold_texts(question, is_second=is_second) for question in examples]
    return [
        score_answer(str(prediction["answer"]), gold, is_second=is_second)
        for prediction, gold in zip(predictions, golds, strict=True)
    ]
