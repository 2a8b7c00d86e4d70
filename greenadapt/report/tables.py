"""Scores, losses, answers and comparisons as tables, for the terminal and for cards; the quality of rows in words.

``figures`` of rows or of a map are those of ``vectors.quality.HeldOutFigures`` as a manifest has them.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from greenadapt.checkpoints.layout import set_name
from greenadapt.errors import as_decimal, as_percent, one_line, pluralize
from greenadapt.store.files import Json

VIEW_NAMES = {
    "mean": "both tokenizers, averaged",
    "base": "the base tokenizer",
    "expanded": "the expanded tokenizer",
}

_PART_SHARES = ("precision", "recall", "f1", "em", "substr")
_PART_COUNTS = ("support", "questions")
_PARTS = {"by_type": "type", "by_class": "class"}
"""Name in a ``scores.json`` → the kind of the parts whose scores it has."""
_ANSWERS = {"has_answer": "has answer", "no_answer": "no answer"}
TASK_NAMES = {"ner": "NER", "classification": "classification", "qa": "question answering"}
_SCORES = {"f1": "F1", "macro_f1": "macro F1", "pearson": "points of Pearson's correlation"}
_NOT_SHARES = frozenset({"mse"})
_KINDS = {"test": "test", "dev": "development"}
_TEXTS = {"heldout": "held-out text", "general": "general text"}
_MODELS = {"base_model": "the base model", **VIEW_NAMES}
_MEASURES = {"em": "EM", "f1": "F1", "substr": "substring"}
_FEWEST = 10  # questions, below which no model is called the better one
_MAX_CHARS = 200  # of an answer that stands alone


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and the rows."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    numbers: Sequence[int] | None = None
    """The columns that hold numbers; by default all but the first."""

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers."""
        return column > 0 if self.numbers is None else column in self.numbers


def score_tables(scores: Json, test: str = "test set") -> list[Table]:
    """The tables of a ``scores.json``: on the test and the development set each seed, their mean and deviation.

    Each set also has tables by tokenization, and by type, class or kind of question. Shares are in percent. ``test`` is
    the test set in the title; a seed that is ``None`` is the only model. Tasks that share an encoder have one row per
    set, and the average, over the seeds. An undertrained seed is marked.
    """
    if "tasks" in scores:
        return [_table(scores, kind) for kind in _KINDS if kind in scores["average"]]
    tables = []
    for name, label in (("test", test), ("dev", "dev set")):
        if not all(name in seed for seed in scores["seeds"]):
            continue
        seeds = {_column(seed["seed"], scores.get("undertrained", ())): seed[name] for seed in scores["seeds"]}
        title = f"{TASK_NAMES[scores['task']]}, {label}, in percent"
        if len(next(iter(seeds.values())).get("views", {})) > 1:
            title += f", by the logits of {VIEW_NAMES[scores['pool']]}"
        tables.append(_seeds_table(title, scores["main"], seeds))
        tables += [*_view_tables(scores["main"], seeds), *_by_part(list(seeds.values()))]
    return tables


def _column(seed: int | None, undertrained: Collection[int]) -> str:
    return "model" if seed is None else f"seed {seed} (undertrained)" if seed in undertrained else f"seed {seed}"


def figure(share: float | None) -> str:
    """A share in percent, nothing for ``None``."""
    return "" if share is None else as_decimal(share, 2, percent=True)


def score_name(name: str) -> str:
    """The name of a score, or of its points, in running text."""
    return _SCORES.get(name, name)


def with_sign(share: float | None) -> str:
    """A difference of shares in percent, with its sign."""
    return "" if share is None else as_decimal(share, 2, percent=True, signed=True)


def assessment(result: Json) -> list[str]:
    """The result of cross-validation (``cross_validate``) in plain sentences; the first one has the answer.

    The average of both tokenizations decides, or the only one that was measured; a sentence is added for another
    tokenization whose interval is above 0.
    """
    _, decisive, *single = result["rows"]
    better = [row for row in single if row["low"] > 0]
    gain = f"{_format_gain(result, decisive)} over the base model"
    if not any(row["score"] for row in result["rows"]):
        longer = "more --epochs" if result["verdict"] else "a higher --max-steps"
        lines = [f"Neither model learned the task, all scores are 0: give {longer}, or a higher --learning-rate."]
    elif result["verdict"] == "helps":
        lines = [f"Adaptation helps: {gain}." + (" Use both tokenizations." if decisive["read_by"] == "mean" else "")]
    elif result["verdict"] == "hurts":
        lines = [f"Adaptation hurts: {gain}. Keep the base model, or try expand with a higher --min-count."]
    elif result["verdict"] == "unclear":
        lines = [f"No clear difference: {gain}. Keep the base model."]
    else:
        lines = [f"No verdict, since --max-steps ended the trainings early; so far {gain}. For one, leave it out."]
    if better:
        best = max(better, key=lambda row: float(row["score"]))
        lines.append(
            f"By {VIEW_NAMES[best['read_by']]} alone it is {_format_gain(result, best)}, at the cost of one pass "
            f"(finetune --pool {best['read_by']})."
        )
    return lines


def _format_gain(result: Json, row: Json) -> str:
    difference, low, high = (
        as_decimal(row[name], 1, percent=True, signed=True) for name in ("difference", "low", "high")
    )
    return f"{difference} {score_name(result['main'])} ({low} to {high})"


def _seeds_table(title: str, main: str, seeds: Mapping[str, Json]) -> Table:
    first = next(iter(seeds.values()))
    # Integers are numbers of scored items, the same for each seed.
    names = [name for name, value in first.items() if isinstance(value, float | None)]
    names.sort(key=lambda name: name != main)
    rows = [[f"{name}, no share" if name in _NOT_SHARES else name, *_over_seeds(name, seeds)] for name in names]
    return Table(title, ["score", *_columns(seeds)], rows)


def _view_tables(main: str, seeds: Mapping[str, Json]) -> list[Table]:
    views = next(iter(seeds.values())).get("views", {})
    if len(views) < 2:
        return []
    of_view = {view: {seed: scores["views"][view] for seed, scores in seeds.items()} for view in views}
    rows = [[VIEW_NAMES[view], *_over_seeds(main, of_seeds)] for view, of_seeds in of_view.items()]
    return [Table(f"Scores by tokenization: {main}", ["logits of", *_columns(seeds)], rows)]


def _parts_over_seeds(seeds: Sequence[Json]) -> tuple[str, dict[str, Json]]:
    """The kind of the parts of a set, ``type``, ``class`` or ``question``, and the mean scores of each part by label.

    The mean is over the ``seeds`` that have the part: a type that only some seeds predict is missing from the others.
    """
    kind = next((name for name in _PARTS if any(name in seed for seed in seeds)), None)
    parts = [seed[kind] if kind else {name: seed[name] for name in _ANSWERS if name in seed} for seed in seeds]
    means: dict[str, Json] = {}
    for label in dict.fromkeys(label for part in parts for label in part):
        scored = [part[label] for part in parts if label in part]
        names = [name for name in (*_PART_SHARES, *_PART_COUNTS) if name in scored[0]]
        means[label] = {name: fmean(scores[name] for scores in scored) for name in names}
    return _PARTS[kind] if kind else "question", means


def _by_part(seeds: Sequence[Json]) -> list[Table]:
    """The scores of each part, means over the seeds."""
    kind, parts = _parts_over_seeds(seeds)
    if len(parts) < 2:
        return []
    rows = [
        [label, *(f"{v:,.0f}" if name in _PART_COUNTS else figure(v) for name, v in means.items())]
        for label, means in parts.items()
    ]
    over = ", mean of the seeds" if len(seeds) > 1 else ""
    return [Table(f"by {kind}{over}", [kind, *next(iter(parts.values()))], rows)]


def _columns(seeds: Mapping[str, Json]) -> list[str]:
    return [*(["mean", "std"] if len(seeds) > 1 else []), *seeds]


def _over_seeds(name: str, seeds: Mapping[str, Json]) -> list[str]:
    """Mean, sample deviation and the score of each seed; for a single seed only its score."""
    values = [scores.get(name) for scores in seeds.values()]
    measured = [value for value in values if value is not None]
    summary: list[str] = []
    if len(values) > 1:
        whole = len(measured) == len(values)
        summary = [_score(name, fmean(measured)), _score(name, stdev(measured))] if whole else ["", ""]
    return [*summary, *(_score(name, value) for value in values)]


def _score(name: str, value: float | None) -> str:
    if name in _NOT_SHARES and value is not None:
        return f"{value:.4g}"
    return figure(value)


def tasks_table(tasks: Sequence[Json]) -> Table:
    """The tasks of a folder with their mean scores on the test sets, or else on the development sets.

    A task has ``name``, ``kind``, ``adapter``, ``weights``, ``metric`` and ``scores``.
    """
    rows = []
    for task in tasks:
        means: Json = next((task["scores"][name] for name in _KINDS if name in task["scores"]), {})
        scores = ", ".join(f"{name} {figure(over['mean'])}" for name, over in means.items())
        rows.append([task["name"], task["kind"], task["adapter"], f"{task['weights']:,}", task["metric"], scores])
    columns = ["task", "kind", "adapter", "weights", "score", "in percent"]
    return Table(f"{pluralize(len(rows), 'task')} on one encoder", columns, rows)


def _table(scores: Json, kind: str) -> Table:
    seeds = scores["seeds"]
    title = f"{pluralize(len(scores['tasks']), 'task')}, {_KINDS[kind]} sets, in percent"
    if _has_views(seeds[0], kind):
        title += f", by the logits of {VIEW_NAMES[scores['pool']]}"
    rows = [
        [f"{set_name(task, kind, name)}, {scores['metrics'][task]}", *_task_over_seeds(over, len(seeds))]
        for task, kinds in scores["tasks"].items()
        for name, over in kinds.get(kind, {}).items()
    ]
    if len(rows) > 1:
        rows.append(["average", *_task_over_seeds(scores["average"][kind], len(seeds))])
    columns = ["mean", "std"] if len(seeds) > 1 else [f"seed {seeds[0]['seed']}"]
    return Table(title, ["set, score", *columns], rows)


def _task_over_seeds(over: Json, n_seeds: int) -> list[str]:
    return [figure(over["mean"]), *([figure(over["std"])] if n_seeds > 1 else [])]


def _has_views(seed: Json, kind: str) -> bool:
    """Whether both tokenizations were scored."""
    sets = [scores for kinds in seed["tasks"].values() for scores in kinds.get(kind, {}).values()]
    return any(len(scores.get("views", {})) > 1 for scores in sets)


def loss_tables(scores: Json) -> list[Table]:
    """The table of a ``scores.json``: the loss on every text and by each tokenization, before and after training.

    The list is empty if no loss was measured.
    """
    rows = []
    for name, measured in scores["losses"].items():
        for view, before in measured["before"].items():
            after = measured["after"][view]
            change = "" if before is None or after is None else f"{after - before:+.4f}"
            numbers = [f"{measured['inputs']:,}", f"{measured['targets'][view]:,}", _loss(before), _loss(after), change]
            rows.append([_TEXTS[name], f"the {view} tokenizer", *numbers])
    title = "masked language modelling: mean loss of a masked piece, in nats"
    columns = ["text", "read by", "inputs", "masked", "before", "after", "change"]
    return [Table(title, columns, rows, range(2, 7))] if rows else []


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"


@dataclass(frozen=True)
class MarkedLine:
    """A line whose ``answer`` stands out from the text ``before`` and ``after`` it, with a ``label`` and a ``note``."""

    before: str
    answer: str = ""
    after: str = ""
    note: str = ""
    label: str = ""


def printable(text: str) -> str:
    """``text`` on one line, with single spaces, and harmless to a terminal.

    Control characters, characters that turn the direction of writing, and lone surrogates become U+FFFD.
    """
    return one_line(re.sub(r"\s+", " ", text))


def answer_lines(row: Json) -> list[MarkedLine]:
    """The lines below a question: its best answer within a sentence, its other answers, and the gold answers.

    ``row`` is a line of output with ``question``, the best answer and all of ``answers``; with ``compared``, the
    answers of other models are added.
    """
    lines = [_mark_in_sentence(row), *(_mark_alone("", answer) for answer in row["answers"][1:])]
    compared = row.get("compared", {})
    lines += [_mark_alone(f"{_MODELS[name]}: ", compared[name]) for name in _MODELS if name in compared]
    if "gold" in row:
        gold = " | ".join(dict.fromkeys(_shorten(text) for text in row["gold"])) or "no answer"
        lines.append(MarkedLine("", gold, note=_f1(row), label="gold: "))
    return lines


def scores_table(scores: Json) -> Table:
    """Each score with its interval, of all questions and of those with and without answer, in percent."""
    parts = {"": scores, **{name: scores[part] for part, name in _ANSWERS.items() if part in scores}}
    rows = []
    for name, part in parts.items():
        for key, measure in _MEASURES.items():
            if key in part:
                interval = _interval(part["intervals"][key], figure)
                label = ", ".join(filter(None, (measure, name)))
                rows.append([label, figure(part[key]), interval, f"{part['questions']:,}"])
    return Table(f"Scores in percent: {_counts(scores)}", ["score", "percent", "95 % interval", "questions"], rows)


def comparison_tables(comparison: Json) -> list[Table]:
    """A table for each score: every model's score, and its difference to the base model with interval and verdict.

    The list is empty if there are no gold answers.
    """
    models = comparison["models"]
    names = _names(models)
    tables = []
    for key, measure in _MEASURES.items():
        rows = [
            [name, figure(model[key]), _interval(model["intervals"][key], figure), *_difference(model, key, comparison)]
            for name, model in zip(names, models, strict=True)
            if key in model
        ]
        columns = ["answers of", measure, "95 % interval", "difference", "95 % interval", "which says"]
        if rows:
            tables.append(Table(f"{measure} in percent: {_counts(comparison)}", columns, rows))
    return tables


def describe_changes(comparison: Json) -> str:
    """How many answers differ from the base model's, in a sentence."""
    n_questions = comparison["questions"] + comparison["unlabelled"]
    words = f"{comparison['changed']:,} of {n_questions:,} answers differ from the base model's"
    if "better" not in comparison:
        return words
    better, worse, equal = (f"{comparison[name]:,}" for name in ("better", "worse", "equal"))
    return f"{words}: {better} better, {worse} worse, {equal} equal in F1"


def _mark_in_sentence(row: Json) -> MarkedLine:
    if row["start"] is None:
        return _mark_alone("", row)
    start, end = (row[name] - row["sentence_start"] for name in ("start", "end"))
    sentence = row["sentence"]
    before, answer, after = map(printable, (sentence[:start], sentence[start:end], sentence[end:]))
    return MarkedLine(before, answer, after, _score_and_document(row))


def _mark_alone(label: str, answer: Json) -> MarkedLine:
    """An answer without its sentence, but with its scores if it has any."""
    text = "no answer" if answer["start"] is None else _shorten(answer["answer"])
    note = ", ".join(filter(None, (_score_and_document(answer), _f1(answer) if label else "")))
    return MarkedLine("", text, note=note, label=label)


def _score_and_document(answer: Json) -> str:
    """The probability of an answer, and its document."""
    if answer["logit"] is None:
        return "there is nothing to choose from"
    score = f"{as_decimal(answer['score'], 0, percent=True)} %"
    return ", ".join(filter(None, (score, printable(answer.get("document", "")))))


def _f1(answer: Json) -> str:
    return f"F1 {figure(answer['f1'])}" if "f1" in answer else ""


def _names(models: list[Json]) -> list[str]:
    """The names of the models' answers: by tokenization, or by model if there is only one tokenization."""
    if any(model["name"] == "expanded" for model in models):
        return [_MODELS[model["name"]] for model in models]
    return [_MODELS["base_model"] if model["name"] == "base_model" else printable(model["model"]) for model in models]


def _counts(scores: Json) -> str:
    """The numbers of questions and contexts, and what was resampled for the intervals."""
    words = f"{pluralize(scores['questions'], 'question')} on {pluralize(scores['contexts'], 'context')}"
    if scores["unlabelled"]:
        words += f", {scores['unlabelled']:,} more without gold answer"
    if scores.get("resampled") == "contexts":
        words += "; contexts resampled"
    elif "resampled" in scores:
        words += "; questions resampled, too few contexts to tell how these differ"
    return words


def _difference(model: Json, key: str, comparison: Json) -> list[str]:
    """Difference, interval and verdict; empty for the base model."""
    if "differences" not in model:
        return ["", "", ""]
    difference = model["differences"][key]
    if comparison["questions"] < _FEWEST:
        verdict = "too few questions"
    elif difference["low"] <= 0 <= difference["high"]:
        verdict = "includes zero"
    else:
        verdict = "better" if difference["difference"] > 0 else "worse"
    ends = [difference["low"], difference["high"]]
    return [with_sign(difference["difference"]), _interval(ends, with_sign), verdict]


def _interval(ends: list[float], written: Callable[[float | None], str]) -> str:
    low, high = ends
    return f"{written(low)} to {written(high)}"


def _shorten(text: str) -> str:
    """An answer on one line, without its middle if it is long."""
    line = printable(text).strip()
    if len(line) <= _MAX_CHARS:
        return line
    half = _MAX_CHARS // 2
    return f"{line[:half].rsplit(' ', 1)[0]} … {line[-half:].split(' ', 1)[-1]}"


MAP = "map"
"""The recipe whose rows are the mapped vectors."""
ADVICE = "more text helps most, then more --epochs of w2v"


def explains_nothing(figures: Json) -> bool:
    """Whether the mean of the held-out words' rows is closer to these rows than the mapped vectors are."""
    return bool(figures["r2"] < 0)


def r2_text(figures: Json) -> str:
    """The explained share of the variance, with a remark if it is below 0."""
    return f"R² {figures['r2']:.3f}{' (under 0: it explains nothing)' if explains_nothing(figures) else ''}"


def rows_warning(figures: Json | None, recipe: str = MAP) -> str:
    """The consequence of rows that predict nothing, and advice; empty for useful rows, and without figures.

    Least squares brings the mapped vectors as near as possible, so their R² counts. Rows of other recipes have other
    lengths, so the criterion is whether they find words more often than by chance.
    """
    if not figures:
        return ""
    n = figures["n_heldout"]
    if recipe == MAP:
        if not explains_nothing(figures):
            return ""
        return (
            f"on {n:,} held-out words R² is {figures['r2']:.3f}, under 0: the map explains nothing, and the mean of "
            f"their rows would be closer to these than the mapped vectors are; {ADVICE}"
        )
    scores = figures["base_rows"]["cosine"]
    if (precision := scores["precision_at_10"]) > 10 / scores["n_candidates"]:
        return ""
    return (
        f"of {n:,} rows by --rows {recipe} of held-out words {as_percent(precision)} have the word's own row among "
        f"the ten nearest, no more than by chance; {ADVICE}"
    )


def new_words_sentence(figures: Json) -> str:
    """How much of the text the new words are, and how many are rare, from the figures of ``assess_rows``.

    It is empty for vectors without counts.
    """
    if (added := figures["added"]) is None:
        return ""
    n_rare, n_words = added["by_count"][0]["n_words"], sum(band["n_words"] for band in added["by_count"])
    return (
        f"{as_percent(added['share'])} of the words of the corpus have a new row; {as_percent(n_rare / n_words, 0)} of "
        f"the {n_words:,} new rows are of words that occur less than {added['by_count'][1]['min_count']} times."
    )
