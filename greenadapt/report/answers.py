"""Answers for people to read: each in its sentence, and tables of their scores and of how two models compare."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from greenadapt.errors import one_line
from greenadapt.report.tables import VIEW_NAMES, Table, figure, signed
from greenadapt.storage.files import Json

SHOWN_NAMES = {"base_model": "the base model", **VIEW_NAMES}


MEASURE_NAMES = {"em": "EM", "f1": "F1", "substr": "substring"}


PARTS = {"has_answer": "has answer", "no_answer": "no answer"}


_FEWEST = 10  # questions, below which no model is called the better one


_MAX_CHARS = 200  # of an answer that stands alone


_WHITE_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Marked:
    """One line: ``answer`` stands out from what is ``before`` and ``after`` it; ``label`` and ``note`` are about all of
    it.
    """

    before: str
    answer: str = ""
    after: str = ""
    note: str = ""
    label: str = ""


@dataclass(frozen=True)
class AnswerLines:
    """A question and the lines below it."""

    question: str
    lines: tuple[Marked, ...]


@dataclass(frozen=True)
class Changes:
    """Questions to which two models have different answers."""

    title: str
    questions: tuple[AnswerLines, ...]


def printable(text: str) -> str:
    """``text`` on one line, runs of white space as one space, without what a terminal would act on: control
    characters, those that turn the direction of writing, and lone surrogates are U+FFFD.
    """
    return one_line(_WHITE_SPACE.sub(" ", text))


def answer_lines(row: Json) -> AnswerLines:
    """A question's line of output (with ``question``, the best answer and all of ``answers``): the best answer in its
    sentence, the others alone, those of the models that it is ``compared`` with, and the gold answers.
    """
    lines = [_in_sentence(row), *(_alone("", answer) for answer in row["answers"][1:])]
    compared = row.get("compared", {})
    lines += [_alone(f"{SHOWN_NAMES[name]}: ", compared[name]) for name in SHOWN_NAMES if name in compared]
    if "gold" in row:
        gold = " | ".join(dict.fromkeys(_short(text) for text in row["gold"])) or "no answer"
        lines.append(Marked("", gold, note=_measured(row), label="gold: "))
    return AnswerLines(printable(row["question"]), tuple(lines))


def scores_table(scores: Json) -> Table:
    """Each score with its interval, of all questions and of those with and without answer, in percent."""
    parts = {"": scores, **{name: scores[part] for part, name in PARTS.items() if part in scores}}
    rows = []
    for name, part in parts.items():
        for key, measure in MEASURE_NAMES.items():
            if key in part:
                interval = _interval(part["intervals"][key], figure)
                label = ", ".join(filter(None, (measure, name)))
                rows.append([label, figure(part[key]), interval, f"{part['questions']:,}"])
    return Table(f"Scores in percent: {_counted(scores)}", ["score", "percent", "95 % interval", "questions"], rows)


def comparison_tables(comparison: Json) -> list[Table]:
    """A table for each score: that of every model, its difference to the base model, and whether the interval of that
    says which is better, or includes zero.

    None if there are no gold answers.
    """
    models = comparison["models"]
    names = _names(models)
    tables = []
    for key, measure in MEASURE_NAMES.items():
        rows = [
            [name, figure(model[key]), _interval(model["intervals"][key], figure), *_difference(model, key, comparison)]
            for name, model in zip(names, models, strict=True)
            if key in model
        ]
        columns = ["answers of", measure, "95 % interval", "difference", "95 % interval", "which says"]
        if rows:
            tables.append(Table(f"{measure} in percent: {_counted(comparison)}", columns, rows))
    return tables


def changed_words(comparison: Json) -> str:
    """How many answers differ from the base model's, in a sentence."""
    n_questions = comparison["questions"] + comparison["unlabelled"]
    words = f"{comparison['changed']:,} of {n_questions:,} answers differ from the base model's"
    if "better" not in comparison:
        return words
    better, worse, equal = (f"{comparison[name]:,}" for name in ("better", "worse", "equal"))
    return f"{words}: {better} better, {worse} worse, {equal} equal in F1"


def changes(comparison: Json) -> list[Changes]:
    """The questions that gained and lost most, or the first that changed; lists that have any."""
    titles = {"best": "Largest gains in F1", "worst": "Largest losses in F1", "first": "The first that changed"}
    name = _names(comparison["models"])[-1:]
    return [
        Changes(title, tuple(_changed(change, *name) for change in comparison[key]))
        for key, title in titles.items()
        if comparison.get(key)
    ]


def _in_sentence(row: Json) -> Marked:
    if row["start"] is None:
        return _alone("", row)
    start, end = (row[name] - row["sentence_start"] for name in ("start", "end"))
    sentence = row["sentence"]
    before, answer, after = map(printable, (sentence[:start], sentence[start:end], sentence[end:]))
    return Marked(before, answer, after, _score_and_place(row))


def _alone(label: str, answer: Json) -> Marked:
    """An answer without its sentence; with its scores if it has any."""
    text = "no answer" if answer["start"] is None else _short(answer["answer"])
    note = ", ".join(filter(None, (_score_and_place(answer), _measured(answer) if label else "")))
    return Marked("", text, note=note, label=label)


def _score_and_place(answer: Json) -> str:
    """How likely an answer is, and where it stands."""
    if answer["logit"] is None:
        return "there is nothing to choose from"
    return ", ".join(filter(None, (f"{100 * answer['score']:.0f} %", printable(answer.get("document", "")))))


def _measured(answer: Json) -> str:
    return f"F1 {figure(answer['f1'])}" if "f1" in answer else ""


def _changed(change: Json, name: str) -> AnswerLines:
    answers = {"gold: ": " | ".join(change["gold"])} if "gold" in change else {}
    answers |= {f"{SHOWN_NAMES['base_model']}: ": change["base_model"], f"{name}: ": change["mean"]}
    lines = tuple(Marked("", _short(text) or "no answer", label=label) for label, text in answers.items())
    gain = [f"F1 {signed(change['gain'])}"] if "gain" in change else []
    return AnswerLines(f"{printable(change['question'])} ({', '.join([printable(change['id']), *gain])})", lines)


def _names(models: list[Json]) -> list[str]:
    """What each model's answers are called: by the model if there is one tokenization."""
    if any(model["name"] == "expanded" for model in models):
        return [SHOWN_NAMES[model["name"]] for model in models]
    return [
        SHOWN_NAMES["base_model"] if model["name"] == "base_model" else printable(model["model"]) for model in models
    ]


def _counted(scores: Json) -> str:
    """How many questions on how many contexts, and what the intervals are from."""
    words = f"{_number(scores['questions'], 'question')} on {_number(scores['contexts'], 'context')}"
    if scores["unlabelled"]:
        words += f", {scores['unlabelled']:,} more without gold answer"
    if scores.get("resampled") == "contexts":
        words += "; contexts resampled"
    elif "resampled" in scores:
        words += "; questions resampled, too few contexts to tell how these differ"
    return words


def _number(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _difference(model: Json, key: str, comparison: Json) -> list[str]:
    """Difference, interval and what it says; nothing for the base model."""
    if "differences" not in model:
        return ["", "", ""]
    found = model["differences"][key]
    if comparison["questions"] < _FEWEST:
        verdict = "too few questions"
    elif found["low"] <= 0 <= found["high"]:
        verdict = "includes zero"
    else:
        verdict = "better" if found["difference"] > 0 else "worse"
    return [signed(found["difference"]), _interval([found["low"], found["high"]], signed), verdict]


def _interval(ends: list[float], written: Callable[[float | None], str]) -> str:
    low, high = ends
    return f"{written(low)} to {written(high)}"


def _short(text: str) -> str:
    """An answer on one line, its middle left out if it is long."""
    line = printable(text).strip()
    if len(line) <= _MAX_CHARS:
        return line
    half = _MAX_CHARS // 2
    return f"{line[:half].rsplit(' ', 1)[0]} … {line[-half:].split(' ', 1)[-1]}"
