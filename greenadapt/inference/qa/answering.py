"""Rows of answers to questions, their scores with intervals, and the comparison with the base model's answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.checkpoints.provenance import adapted_input
from greenadapt.checkpoints.source import PretrainedModel, find_model
from greenadapt.cluster import Spread
from greenadapt.config import Pool, QaConfig, ReadingOptions, RetrievalConfig
from greenadapt.corpus.opening import source_input
from greenadapt.errors import UsageError
from greenadapt.inference.models import OpenedModel, check_reading, one_process
from greenadapt.inference.qa.inquiry import InquirySources, OwnPassages, read_inquiry
from greenadapt.inference.qa.lookups import Lookup, QaModel, Waiting, in_blocks, looked_up, place_of, read_journal
from greenadapt.inference.search.index import index_input
from greenadapt.inference.search.words import words_of
from greenadapt.models.memory.choice import check_memories
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Progress, Warnings
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.tasks.metrics import interval, paired, resampled
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import Found, ranked, score_answer

MEASURES = ("em", "f1", "substr")
BASE_MODEL, OURS = "base_model", "mean"
"""Names of the answers of the model that another is compared with, and of that other's."""
_N_SHOWN = 5


def score_rows(rows: Sequence[Json], groups: Sequence[str]) -> Json:
    """Means of ``em``, ``f1`` and ``substr`` over the rows that have them, and their 95 % ``intervals``.

    ``groups`` says of each row which context it is on, and ``resampled`` whether contexts or questions were drawn (see
    ``bootstrap.resampled``). ``questions`` and ``contexts`` are how many were scored, ``unlabelled`` how many rows have
    nothing to score with. Where there are questions without answer, those of either kind alone are in ``has_answer``
    and ``no_answer``.
    """
    labelled = [(row, group) for row, group in zip(rows, groups, strict=True) if "em" in row]
    kinds = {"": labelled}
    if any(not row["gold"] for row, _ in labelled):
        kinds["has_answer"] = [pair for pair in labelled if pair[0]["gold"]]
        kinds["no_answer"] = [pair for pair in labelled if not pair[0]["gold"]]
    described = {name: _Scored.of(part).as_dict() for name, part in kinds.items() if part}
    whole = described.pop("", {"questions": 0, "contexts": 0})
    return {**whole, "unlabelled": len(rows) - len(labelled), **described}


def compare_rows(rows: Sequence[Json], groups: Sequence[str], names: Mapping[str, str]) -> Json:
    """What ``score_rows`` counts, and each model's scores, the first of them the base model's.

    ``names`` are those of the models, ``base_model`` and ``mean``. The others of ``models`` are the model's
    tokenizations alone and its answers, ``mean``; they have ``differences`` to the base model, each with the 95 %
    percentile interval of a paired bootstrap. ``changed`` is how many of all rows have an answer of another text than
    the base model's; of those with a gold answer ``better``, ``worse`` and ``equal`` in F1, and ``best`` and ``worst``
    are the largest gains and losses. Where no row has a gold answer ``first`` has the first that changed instead.
    """
    labelled = [(row, group) for row, group in zip(rows, groups, strict=True) if "em" in row]
    changed = [row for row in rows if row["answer"] != row["compared"][BASE_MODEL]["answer"]]
    compared = [name for name in (BASE_MODEL, "base", "expanded") if any(name in row["compared"] for row in rows)]
    models: list[Json] = [
        {"name": name, "model": names[name if name == BASE_MODEL else OURS]} for name in (*compared, OURS) if rows
    ]
    counts: Json = {"questions": len(labelled), "contexts": len({group for _, group in labelled})}
    counts["unlabelled"] = len(rows) - len(labelled)
    if not labelled:
        return {
            **counts,
            "models": models,
            "changed": len(changed),
            "first": [_change(row) for row in changed[:_N_SHOWN]],
        }
    scored = [_Scored.of([(_answer_of(row, model["name"]), group) for row, group in labelled]) for model in models]
    for model, one in zip(models, scored, strict=True):
        model |= one.means()
        if one is not scored[0]:
            model["differences"] = one.differences(scored[0])
    return {**counts, "resampled": scored[0].resampled, "models": models, "changed": len(changed), **_gains(changed)}


@dataclass(frozen=True)
class _Scored:
    """One model's scores: ``sums`` (n, 4) of ``MEASURES`` and of questions, each over what is resampled."""

    sums: Array
    n_contexts: int
    resampled: str

    @classmethod
    def of(cls, labelled: Sequence[tuple[Json, str]]) -> "_Scored":
        """The scores of answers, each with its context."""
        scores = np.array([[*(answer[name] for name in MEASURES), 1.0] for answer, _ in labelled])
        groups = [group for _, group in labelled]
        sums, drawn = resampled(scores, groups)
        return cls(sums, len(set(groups)), "contexts" if drawn == "contexts" else "questions")

    def means(self) -> Json:
        """Each measure's mean, and their ``intervals``."""
        found = {name: interval(self.sums, _mean_of(i)) for i, name in enumerate(MEASURES)}
        means = {name: one.value for name, one in found.items()}
        return {**means, "intervals": {name: [one.low, one.high] for name, one in found.items()}}

    def differences(self, other: "_Scored") -> Json:
        """Of each measure, this one less the other's on the same questions."""
        found = {}
        for i, name in enumerate(MEASURES):
            entries = asdict(paired(self.sums[np.newaxis], other.sums[np.newaxis], _mean_of(i)))
            found[name] = {key: entries[key] for key in ("difference", "low", "high")}
        return found

    def as_dict(self) -> Json:
        """Counts, means and intervals."""
        counts = {"questions": int(self.sums[:, -1].sum()), "contexts": self.n_contexts}
        return {**counts, **self.means(), "resampled": self.resampled}


def _mean_of(column: int) -> Callable[[Array], Array]:
    """(…, 4) sums → (…) the mean of one measure."""
    return lambda sums: np.asarray(sums[..., column] / sums[..., -1])


def _answer_of(row: Json, model: str) -> Json:
    # Where the search found nothing, tokenizations have no answers of their own: no model has one.
    answer: Json = row if model == OURS else row["compared"].get(model, row["compared"][BASE_MODEL])
    return answer


def _gains(changed: Sequence[Json]) -> Json:
    """How many of the answers that changed are better, and which most."""
    changes = [_change(row) for row in changed if "em" in row]
    better = [one for one in changes if one["gain"] > 0]
    worse = [one for one in changes if one["gain"] < 0]
    return {
        "better": len(better),
        "worse": len(worse),
        "equal": len(changes) - len(better) - len(worse),
        "best": sorted(better, key=lambda one: -one["gain"])[:_N_SHOWN],
        "worst": sorted(worse, key=lambda one: one["gain"])[:_N_SHOWN],
    }


def _change(row: Json) -> Json:
    """A question with both models' answers; where it has a gold answer also that and the gain in F1."""
    base = row["compared"][BASE_MODEL]
    change = {"id": row["id"], "question": row["question"], BASE_MODEL: base["answer"], OURS: row["answer"]}
    return change | ({"gold": row["gold"], "gain": row["f1"] - base["f1"]} if "em" in row else {})


LookUp = Callable[[Iterator[Question]], Iterator[Lookup]]


@dataclass(frozen=True)
class QaRequest:
    """The questions, the model and how answers are chosen."""

    model: str
    """What ``finetune --task qa`` wrote, or any extractive model, adapted or not."""
    sources: InquirySources
    config: QaConfig = field(default_factory=QaConfig)
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    compare: str | None = None
    """The model before it was adapted."""
    null_odds: bool = False
    """Whether every row has to have ``null_odds``."""
    task: str | None = None
    """Which task answers, of a model of several."""
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    """How paragraphs are found, of an index or of contexts."""

    def __post_init__(self) -> None:
        self.retrieval.check_index(self.sources.index)
        if self.sources.index is None and self.retrieval.passages is None and self.retrieval.is_weighed:
            raise UsageError("--search-weight is for paragraphs", "give --passages or --index")
        for name in ("pool", "margin"):
            if self.compare is not None and getattr(self.reading, name) is not None:
                raise UsageError(
                    "--compare shows the answers of either tokenization and of both", f"leave out --{name}"
                )


class Answering:
    """Models found, questions read: iterate over ``rows`` once, then look at ``summary``.

    Raises ``MissingError`` or ``InputError`` if a model or a file is not what it should be.
    """

    def __init__(self, request: QaRequest, progress: Progress, spread: Spread | None = None) -> None:
        one_process("qa")
        self._request = request
        self._progress = progress
        self._spread = spread
        self._models = _models_of(request)
        folders = [model.folder for model in self._models.values()]
        check_reading(folders, request.reading)
        check_memories(folders, request.reading.memory)
        self.inquiry = read_inquiry(request.sources, progress, request.retrieval, self._own_passages())
        self._golds = self.inquiry.golds()
        self._scored: list[Json] = []
        self._impossible: list[str] = []

    @property
    def model(self) -> PretrainedModel:
        """The one that is asked."""
        return self._models[OURS].found

    def _own_passages(self) -> OwnPassages | None:
        """What finds paragraphs of contexts, ``None`` if these are read whole or there is an index."""
        retrieval = self._request.retrieval
        if self._request.sources.index is not None or retrieval.passages is None:
            return None
        return OwnPassages(words_of(self.model.folder), retrieval.passages, retrieval.search_weight)

    def rows(self, journal: Path | None = None) -> Iterator[Json]:
        """One row per question, in order, each as soon as it and those before it have been looked up everywhere.

        With a ``journal``, what was looked up is kept there, and what is there already is not looked up again. Raises
        at once what opening the models raises.
        """
        return self._rows(self._open() if self._spread is None else self._look_up_elsewhere, journal)

    def _open(self) -> LookUp:
        questions = {question.question: question.id for question in self.inquiry.asked.values()}
        return partial(looked_up, _readers(self._request, self._models, questions, self._progress).values())

    def _look_up_elsewhere(self, questions: Iterator[Question]) -> Iterator[Lookup]:
        """On the nodes of a cluster."""
        assert self._spread is not None
        asked = {question.question: question.id for question in self.inquiry.asked.values()}
        said = set[str]()
        for lookups, warnings in self._spread.over(_opened, in_blocks(questions), self._request, asked):
            for warning in [one for one in warnings if one not in said]:
                said.add(warning)
                self._progress.warn(warning)
            yield from lookups

    def _rows(self, look_up: LookUp, journal: Path | None) -> Iterator[Json]:
        waiting = Waiting(self.inquiry, self._request.config.n_best)
        done: set[tuple[str, str, int]] = set()
        for lookup in read_journal(journal):
            waiting.add(lookup)
            done.add((lookup.id, lookup.document, lookup.start))
            yield from map(self._row, waiting.complete())
        total = sum(self.inquiry.n_lookups.values())
        unit = "questions" if total == len(self.inquiry.asked) else "lookups"
        if done:
            self._progress.note(f"{len(done):,} of {total:,} {unit} are done already")
        with ExitStack() as stack:
            bar = stack.enter_context(self._progress.bar("qa", total - len(done), unit))
            kept = stack.enter_context(open(journal, "a", encoding="utf-8")) if journal is not None else None
            pending = (one for one in self.inquiry.lookups() if place_of(one) not in done)
            for lookup in look_up(pending):
                if kept is not None:
                    kept.write(lookup.as_line())
                    kept.flush()
                waiting.add(lookup)
                bar.advance(1)
                yield from map(self._row, waiting.complete())
        yield from map(self._row, waiting.rest())
        self._warn_impossible()

    def summary(self) -> Json:
        """``scores`` where questions have gold answers, and ``comparison`` with the base model; after all ``rows``."""
        groups = [self.inquiry.asked[row["id"]].context for row in self._scored]
        described: Json = {"scores": score_rows(self._scored, groups)} if self._golds else {}
        if BASE_MODEL in self._models:
            names = {name: model.found.name for name, model in self._models.items()}
            described["comparison"] = compare_rows(self._scored, groups, names)
        return described

    def inputs(self) -> dict[str, Json]:
        """All that decides the answers, for a manifest."""
        names = {OURS: "model", BASE_MODEL: "base model"}
        models = {names[name]: adapted_input(model.found) for name, model in self._models.items()}
        paths = self._request.sources.paths()
        if self._request.sources.index is not None:
            models["index"] = index_input(self._request.sources.index)
        return models | {f"source {number}": source_input(path) for number, path in enumerate(paths, start=1)}

    def _row(self, lookup: Lookup) -> Json:
        all_found = lookup.found or {name: Found(()) for name in self._models}
        others = {name: self._ranked(name, found) for name, found in all_found.items()}
        ours, found = others.pop(OURS), all_found[OURS]
        question = self.inquiry.asked[lookup.id].question
        row: Json = {"id": lookup.id, "question": question, **self._scored_answer(lookup.id, ours[0])}
        if self._models[OURS].task.has_null:
            is_known = found.null is not None and found.candidates
            row["null_odds"] = (found.null or 0.0) - found.candidates[0].logit if is_known else None
        row["answers"] = ours[: self._request.config.top]
        if lookup.id in self._golds:
            row["gold"] = self._golds[lookup.id]
        if others:
            row["compared"] = {name: self._scored_answer(lookup.id, each[0]) for name, each in others.items()}
        if self._golds or others:
            self._scored.append(row)
        if row["logit"] is None:
            self._impossible.append(lookup.id)
        return row

    def _ranked(self, name: str, found: Found) -> list[Json]:
        model = self._models.get(name, self._models[OURS])  # the sets of one tokenization are of our model
        return [one.candidate.as_located(one.score) for one in ranked(found, model.task.null_threshold)]

    def _scored_answer(self, id: str, answer: Json) -> Json:  # noqa: A002  (as it is called everywhere)
        golds = self._golds.get(id)
        if golds is None:
            return answer
        return {**answer, **asdict(score_answer(answer["answer"], golds, is_second=self.inquiry.is_second))}

    def _warn_impossible(self) -> None:
        if found := self._impossible:
            self._progress.warn(
                f"questions without any possible answer: {len(found):,}, such as {found[0]}; nothing was read for "
                f"them, or its words have more than {self._models[OURS].task.max_answer_chars} characters, or "
                "the model gives no numbers"
            )


def _models_of(request: QaRequest) -> "dict[str, _Model]":
    given = {OURS: request.model, BASE_MODEL: request.compare}
    return {name: _Model.find(name, model, request) for name, model in given.items() if model is not None}


def _readers(
    request: QaRequest, models: "Mapping[str, _Model]", questions: dict[str, str], progress: Progress
) -> dict[str, QaModel]:
    """The opened models; says which of the ``questions`` (text → id) are too long."""
    is_compared = request.compare is not None
    reading = replace(request.reading, pool="mean") if is_compared else request.reading
    readers = {}
    for name, model in models.items():
        opened = OpenedModel.open(model.folder, reading)
        sets: dict[str, Pool] = {name: opened.run.pool}
        if is_compared and name == OURS and opened.encoder.has_words:
            sets |= {"base": "base", "expanded": "expanded"}
        readers[name] = QaModel(opened, model.task, sets, request.config)
    readers[OURS].warn_long(questions, progress)
    return readers


def _opened(
    request: QaRequest, questions: dict[str, str]
) -> Callable[[Sequence[Question]], tuple[list[Lookup], list[str]]]:
    """What looks a block of questions up, and says what there is to warn of."""
    progress = Warnings()
    readers = _readers(request, _models_of(request), questions, progress)
    return lambda block: ([*looked_up(readers.values(), iter(block))], progress.warnings)


@dataclass(frozen=True)
class _Model:
    """A model that is asked: where it lies, and how its answers are chosen, by its folder and by the request."""

    found: PretrainedModel
    folder: TaskFolder
    task: QuestionTask

    @classmethod
    def find(cls, name: str, model: str, request: QaRequest) -> "_Model":
        found, config = find_model(model), request.config
        which = (request.reading.seed, request.task) if name == OURS else ()
        folder = TaskFolder.open_questions(found, *which)
        said = {
            "word_unit": config.word_unit,
            "max_answer_chars": config.max_answer_chars,
            "has_null": config.no_answer,
            "null_threshold": config.null_threshold,
        }
        trained: Any = folder.task
        task: QuestionTask = replace(trained, **{name: value for name, value in said.items() if value is not None})
        if name == OURS and not task.has_null:
            if request.null_odds:
                raise UsageError("--null-odds, but the model always answers", "give --no-answer")
            if config.null_threshold is not None:
                raise UsageError("--null-threshold, but the model always answers", "give --no-answer")
        return cls(found, replace(folder, task=task), task)
