"""Rows of answers to questions, their scores with intervals, and the comparison with the base model's answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from greenadapt.checkpoints.provenance import adapted_input
from greenadapt.checkpoints.source import PretrainedModel, find_model
from greenadapt.cluster import ClusterPool
from greenadapt.config import Pool, QaConfig, ReadingOptions, RetrievalConfig
from greenadapt.corpus.opening import source_input
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.models import OpenedModel, check_reading, require_one_process
from greenadapt.inference.qa.lookups import Lookup, QaModel, look_up, merge_lookups, split_in_blocks, warn_long
from greenadapt.inference.qa.question_set import QuestionSources, read_question_set
from greenadapt.inference.search.index import open_index
from greenadapt.inference.search.words import words_of
from greenadapt.models.memory.choice import check_memories
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Messages, Progress, repeat
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json
from greenadapt.tasks.metrics import interval, paired_bootstrap, resample
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from greenadapt.tasks.spans import AnswerCandidates, rank, score_answer

MEASURES = ("em", "f1", "substr")
BASE_MODEL, MODEL = "base_model", "mean"
"""Names of the answers of the base model, and of the model that is compared with it."""


def score_rows(rows: Sequence[Json], groups: Sequence[str]) -> Json:
    """Means of ``em``, ``f1`` and ``substr`` over the labelled rows, and their 95 % ``intervals``.

    ``groups`` has the context of each row; ``resampled`` says whether the bootstrap drew contexts or questions (see
    ``metrics.resample``). ``questions`` and ``contexts`` count the scored ones, ``unlabelled`` the rows without gold
    answers. If some questions have no answer, ``has_answer`` and ``no_answer`` have the scores of either kind.
    """
    labelled = [(row, group) for row, group in zip(rows, groups, strict=True) if "em" in row]
    kinds = {"": labelled}
    if any(not row["gold"] for row, _ in labelled):
        kinds["has_answer"] = [pair for pair in labelled if pair[0]["gold"]]
        kinds["no_answer"] = [pair for pair in labelled if not pair[0]["gold"]]
    described = {name: _ScoreSums.of(part).as_dict() for name, part in kinds.items() if part}
    whole = described.pop("", {"questions": 0, "contexts": 0})
    return {**whole, "unlabelled": len(rows) - len(labelled), **described}


def compare_rows(rows: Sequence[Json], groups: Sequence[str], names: Mapping[str, str]) -> Json:
    """The counts of ``score_rows``, and the scores of each of ``models``, of which the first is the base model.

    ``names`` has the names of the models ``base_model`` and ``mean``. The other entries of ``models`` are each
    tokenization alone and their ``mean``; they have ``differences`` to the base model, each with the 95 % percentile
    interval of a paired bootstrap. ``changed`` counts the answers whose text differs from the base model's; of those
    with a gold answer ``better``, ``worse`` and ``equal`` count by F1.
    """
    labelled = [(row, group) for row, group in zip(rows, groups, strict=True) if "em" in row]
    changed = [row for row in rows if row["answer"] != row["compared"][BASE_MODEL]["answer"]]
    compared = [name for name in (BASE_MODEL, "base", "expanded") if any(name in row["compared"] for row in rows)]
    models: list[Json] = [
        {"name": name, "model": names[name if name == BASE_MODEL else MODEL]} for name in (*compared, MODEL) if rows
    ]
    counts: Json = {"questions": len(labelled), "contexts": len({group for _, group in labelled})}
    counts["unlabelled"] = len(rows) - len(labelled)
    if not labelled:
        return {**counts, "models": models, "changed": len(changed)}
    scores = [_ScoreSums.of([(_answer_of(row, model["name"]), group) for row, group in labelled]) for model in models]
    for model, model_scores in zip(models, scores, strict=True):
        model |= model_scores.means()
        if model_scores is not scores[0]:
            model["differences"] = model_scores.differences(scores[0])
    return {**counts, "resampled": scores[0].resampled, "models": models, "changed": len(changed), **_gains(changed)}


@dataclass(frozen=True)
class _ScoreSums:
    """One model's scores: ``sums`` (n, 4) of ``MEASURES`` and of questions, over each context or question."""

    sums: Array
    n_contexts: int
    resampled: str

    @classmethod
    def of(cls, labelled: Sequence[tuple[Json, str]]) -> "_ScoreSums":
        """The scores of answers, each with its context."""
        scores = np.array([[*(answer[name] for name in MEASURES), 1.0] for answer, _ in labelled])
        groups = [group for _, group in labelled]
        sums, drawn = resample(scores, groups)
        return cls(sums, len(set(groups)), "contexts" if drawn == "contexts" else "questions")

    def means(self) -> Json:
        """Each measure's mean, and their ``intervals``."""
        measures = {name: interval(self.sums, _mean_of(i)) for i, name in enumerate(MEASURES)}
        means = {name: measure.value for name, measure in measures.items()}
        return {**means, "intervals": {name: [measure.low, measure.high] for name, measure in measures.items()}}

    def differences(self, base: "_ScoreSums") -> Json:
        """Each measure's mean less the base model's on the same questions."""
        differences = {}
        for i, name in enumerate(MEASURES):
            entries = asdict(paired_bootstrap(self.sums[np.newaxis], base.sums[np.newaxis], _mean_of(i)))
            differences[name] = {key: entries[key] for key in ("difference", "low", "high")}
        return differences

    def as_dict(self) -> Json:
        """Counts, means and intervals."""
        counts = {"questions": int(self.sums[:, -1].sum()), "contexts": self.n_contexts}
        return {**counts, **self.means(), "resampled": self.resampled}


def _mean_of(column: int) -> Callable[[Array], Array]:
    """(…, 4) sums → (…) the mean of one measure."""
    return lambda sums: np.asarray(sums[..., column] / sums[..., -1])


def _answer_of(row: Json, model: str) -> Json:
    # If the search found nothing, there are no answers of single tokenizations, and no model has an answer.
    return row if model == MODEL else row["compared"].get(model, row["compared"][BASE_MODEL])


def _gains(changed: Sequence[Json]) -> Json:
    """Counts of the labelled answers among ``changed`` that are better, worse and equal by F1."""
    gains = [row["f1"] - row["compared"][BASE_MODEL]["f1"] for row in changed if "em" in row]
    counts = {"better": sum(gain > 0 for gain in gains), "worse": sum(gain < 0 for gain in gains)}
    return {**counts, "equal": sum(gain == 0 for gain in gains)}


@dataclass(frozen=True)
class QaRequest:
    """The questions, the model and how answers are chosen."""

    model: str
    """A folder of ``finetune --task qa``, or any extractive model, adapted or not."""
    sources: QuestionSources
    config: QaConfig = field(default_factory=QaConfig)
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    compare: str | None = None
    """The model before it was adapted."""
    task: str | None = None
    """The task of a multitask model that answers."""
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    """The search for paragraphs, in an index or in contexts."""

    def __post_init__(self) -> None:
        for name in ("pool", "margin"):
            if self.compare is not None and getattr(self.reading, name) is not None:
                raise UsageError(
                    "--compare shows the answers of either tokenization and of both", f"leave out --{name}"
                )


class Answerer:
    """Finds the models and reads the questions: iterate over ``rows`` once, then look at ``summary``.

    Raises ``MissingError`` or ``InputError`` if a model or a file is not what it should be.
    """

    def __init__(self, request: QaRequest, progress: Progress, cluster: ClusterPool | None = None) -> None:
        require_one_process("qa")
        self._request = request
        self._progress = progress
        self._cluster = cluster
        self._models = _find_models(request)
        folders = [model.folder for model in self._models.values()]
        check_reading(folders, request.reading)
        check_memories(folders, request.reading.memory)
        self.model: PretrainedModel = self._models[MODEL].source
        """The one that answers."""
        is_narrow = request.sources.index is None and request.retrieval.passages is not None
        words = words_of(self.model.folder) if is_narrow else None
        self.question_set = read_question_set(request.sources, progress, request.retrieval, words)
        self._golds = self.question_set.golds()
        self._scored: list[Json] = []
        self._impossible: list[str] = []

    def rows(self, answered: Sequence[Json] = ()) -> Iterator[Json]:
        """One row per question, in order, each as soon as it and all before it have been looked up in every context.

        Without the rows ``answered`` of an earlier run. Raises at once what opening the models raises.
        """
        request = self._request
        for row in answered:
            self._keep(row)
        ids = {row["id"] for row in answered}
        questions = (question for question in self.question_set.lookups() if question.id not in ids)
        n_lookups = {name: n for name, n in self.question_set.n_lookups.items() if name not in ids}
        texts = {question.question: question.id for question in self.question_set.questions.values()}
        blocks = split_in_blocks(questions)
        if self._cluster is not None:
            lookups = self._look_up_on_nodes(self._cluster, blocks, texts)
        else:
            models = _open_models(request, self._models, texts, self._progress)
            lookups = (lookup for block in blocks for lookup in look_up(models, block, request.config))
        lookups = self._count(lookups, sum(n_lookups.values()))
        return map(self._row, merge_lookups(lookups, n_lookups, request.config.n_best))

    def _look_up_on_nodes(
        self, cluster: ClusterPool, blocks: Iterator[list[Question]], texts: dict[str, str]
    ) -> Iterator[Lookup]:
        shown = set[tuple[str, str]]()
        for lookups, messages in cluster.map(_open_look_up, blocks, self._request, tuple(texts.items())):
            repeat(messages, shown, self._progress)
            yield from lookups

    def _count(self, lookups: Iterator[Lookup], total: int) -> Iterator[Lookup]:
        """Count ``lookups`` on a bar."""
        unit = "questions" if total == len(self.question_set.questions) else "lookups"
        with self._progress.bar("qa", total, unit) as bar:
            for lookup in lookups:
                bar.advance(1)
                yield lookup

    def summary(self) -> Json:
        """The ``scores`` if there are gold answers, and the ``comparison`` with the base model, once all ``rows`` were
        read.

        Warns of questions without any possible answer.
        """
        if impossible := self._impossible:
            self._progress.warn(
                f"questions without any possible answer: {len(impossible):,}, such as {impossible[0]}; nothing was "
                f"read for them, or its words have more than {self._models[MODEL].task.max_answer_chars} characters, "
                "or the model gives no numbers"
            )
        groups = [self.question_set.questions[row["id"]].context for row in self._scored]
        described: Json = {"scores": score_rows(self._scored, groups)} if self._golds else {}
        if BASE_MODEL in self._models:
            names = {name: model.source.name for name, model in self._models.items()}
            described["comparison"] = compare_rows(self._scored, groups, names)
        return described

    def inputs(self) -> dict[str, Json]:
        """All that decides the answers, for a manifest."""
        names = {MODEL: "model", BASE_MODEL: "base model"}
        models = {names[name]: adapted_input(model.source) for name, model in self._models.items()}
        paths = self._request.sources.paths()
        if self._request.sources.index is not None:
            models["index"] = open_index(self._request.sources.index).as_input()
        return models | {f"source {number}": source_input(path) for number, path in enumerate(paths, start=1)}

    def _row(self, lookup: Lookup) -> Json:
        sets = lookup.found or dict.fromkeys(self._models, AnswerCandidates(()))
        answers = {}
        for name, candidates in sets.items():
            model = self._models.get(name, self._models[MODEL])  # the sets of one tokenization are of our model
            best = rank(candidates, model.task.null_threshold)
            answers[name] = [candidate.as_located(score) for candidate, score in best]
        model_answers, candidates = answers.pop(MODEL), sets[MODEL]
        question = self.question_set.questions[lookup.id].question
        row: Json = {"id": lookup.id, "question": question, **self._with_scores(lookup.id, model_answers[0])}
        if self._models[MODEL].task.has_null:
            is_known = candidates.null is not None and candidates.candidates
            row["null_odds"] = (candidates.null or 0.0) - candidates.candidates[0].logit if is_known else None
        row["answers"] = model_answers[: self._request.config.top]
        if lookup.id in self._golds:
            row["gold"] = self._golds[lookup.id]
        if answers:
            row["compared"] = {name: self._with_scores(lookup.id, best[0]) for name, best in answers.items()}
        self._keep(row)
        return row

    def _keep(self, row: Json) -> None:
        """Count a row in the ``summary``."""
        if self._golds or "compared" in row:
            self._scored.append(row)
        if row["logit"] is None:
            self._impossible.append(row["id"])

    def _with_scores(self, id: str, answer: Json) -> Json:  # noqa: A002  (as it is called everywhere)
        golds = self._golds.get(id)
        if golds is None:
            return answer
        return {**answer, **asdict(score_answer(answer["answer"], golds, is_second=self.question_set.is_second))}


@dataclass(frozen=True)
class _AnswerModel:
    """A model, and how its answers are chosen, by its folder and by the request."""

    source: PretrainedModel
    folder: TaskFolder
    task: QuestionTask


def _find_models(request: QaRequest) -> dict[str, _AnswerModel]:
    """The model that answers, and the one that it is compared with."""
    config, models = request.config, {}
    options = {
        "word_unit": config.word_unit,
        "max_answer_chars": config.max_answer_chars,
        "has_null": config.no_answer,
        "null_threshold": config.null_threshold,
    }
    changes: Json = {name: value for name, value in options.items() if value is not None}
    for name, model in ((MODEL, request.model), (BASE_MODEL, request.compare)):
        if model is None:
            continue
        source = find_model(model)
        folder = TaskFolder.open(model, *((request.reading.seed, request.task) if name == MODEL else ()))
        if not isinstance(folder.task, QuestionTask):
            raise InputError(
                f"{model} is for {folder.task.name}, not for question answering",
                "give a model that finetune --task qa wrote",
            )
        task = replace(folder.task, **changes)
        if name == MODEL and not task.has_null and config.null_threshold is not None:
            raise UsageError("--null-threshold, but the model always answers", "give --no-answer")
        models[name] = _AnswerModel(source, replace(folder, task=task), task)
    return models


def _open_models(
    request: QaRequest, models: Mapping[str, _AnswerModel], questions: dict[str, str], progress: Progress
) -> list[QaModel]:
    """The opened models; warns of the ``questions`` (text → id) that are too long."""
    is_compared = request.compare is not None
    reading = replace(request.reading, pool="mean") if is_compared else request.reading
    opened = []
    for name, model in models.items():
        opened_model = OpenedModel.open(model.folder, reading)
        pool_of_set: dict[str, Pool] = {name: opened_model.settings.pool}
        if is_compared and name == MODEL and opened_model.encoder.has_words:
            pool_of_set |= {"base": "base", "expanded": "expanded"}
        opened.append(QaModel(opened_model, model.task, pool_of_set))
    warn_long(opened[0].model.encoder, questions, progress)
    return opened


def _open_look_up(
    request: QaRequest, questions: tuple[tuple[str, str], ...]
) -> Callable[[Sequence[Question]], tuple[list[Lookup], list[tuple[str, str]]]]:
    """A function that returns the lookups of a block of questions, and the messages; ``questions`` are pairs of text
    and id.
    """
    progress = Messages()
    models = _open_models(request, _find_models(request), dict(questions), progress)
    return lambda block: ([*look_up(models, block, request.config)], progress.messages)
