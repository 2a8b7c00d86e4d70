"""The scores of a fine-tuned model as tables of text, for the terminal and for the model card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

Json = dict[str, Any]
VIEWS = {"mean": "both tokenizers, averaged", "base": "the base tokenizer", "expanded": "the expanded tokenizer"}
_PART_SHARES = ("precision", "recall", "f1", "em", "substr")
_PART_COUNTS = ("support", "questions")
_PARTS = {"by_type": "type", "by_class": "class"}
"""Score that holds the scores of parts of a set → what these parts are."""
_NAMES = {"ner": "NER", "qa": "question answering"}
_ANSWERS = ("has_answer", "no_answer")
_NOT_SHARES = frozenset({"mse"})


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and the rows; the first column has names, the others numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def score_tables(scores: Json, test: str = "test set") -> list[Table]:
    """The tables of a ``scores.json``: on the test and the development set each seed, their mean and deviation; of each
    set also by tokenization, and by type, class or kind of question. Shares are in percent. ``test`` is what the title
    calls the test set; a seed that is ``None`` is the only model.
    """
    tables = []
    for name, called in (("test", test), ("dev", "dev set")):
        if not all(name in seed for seed in scores["seeds"]):
            continue
        seeds = {_seed_name(seed["seed"]): seed[name] for seed in scores["seeds"]}
        title = f"{_NAMES.get(scores['task'], scores['task'])}, {called}, in percent"
        if len(next(iter(seeds.values())).get("views", {})) > 1:
            title += f", by the logits of {VIEWS[scores['pool']]}"
        tables.append(_by_seed(title, scores["main"], seeds))
        tables += [*_by_view(scores["main"], seeds), *_by_part(list(seeds.values()))]
    return tables


def figure(share: float | None) -> str:
    """A share in percent, nothing for ``None``."""
    return "" if share is None else f"{100 * share:.2f}"


def signed(share: float | None) -> str:
    """A difference of shares in percent, with its sign."""
    return "" if share is None else f"{100 * share:+.2f}"


def _seed_name(seed: int | None) -> str:
    return "model" if seed is None else f"seed {seed}"


def _by_seed(title: str, main: str, seeds: Mapping[str, Json]) -> Table:
    first = next(iter(seeds.values()))
    # Integers are counts of what was scored, the same for each seed.
    names = [name for name, value in first.items() if isinstance(value, float | None)]
    names.sort(key=lambda name: name != main)
    rows = [[f"{name}, no share" if name in _NOT_SHARES else name, *_over_seeds(name, seeds)] for name in names]
    return Table(title, ["score", *_columns(seeds)], rows)


def _by_view(main: str, seeds: Mapping[str, Json]) -> list[Table]:
    views = next(iter(seeds.values())).get("views", {})
    if len(views) < 2:
        return []
    of_view = {view: {seed: scores["views"][view] for seed, scores in seeds.items()} for view in views}
    rows = [[VIEWS[view], *_over_seeds(main, each)] for view, each in of_view.items()]
    return [Table(f"Scores by tokenization: {main}", ["logits of", *_columns(seeds)], rows)]


def _by_part(seeds: Sequence[Json]) -> list[Table]:
    """The scores of each part, means over the seeds."""
    kind = next((name for name in _PARTS if name in seeds[0]), None)
    parts = [seed[kind] if kind else {name: seed[name] for name in _ANSWERS if name in seed} for seed in seeds]
    labels = list(dict.fromkeys(label for part in parts for label in part))
    if len(labels) < 2:
        return []
    rows = []
    # A type that only some seeds predict is missing from the others.
    of_label = {label: [part[label] for part in parts if label in part] for label in labels}
    names = [name for name in (*_PART_SHARES, *_PART_COUNTS) if name in of_label[labels[0]][0]]
    for label, each in of_label.items():
        means = {name: fmean(one[name] for one in each) for name in names}
        rows.append([label, *(f"{v:,.0f}" if name in _PART_COUNTS else figure(v) for name, v in means.items())])
    over = ", mean of the seeds" if len(seeds) > 1 else ""
    what = _PARTS[kind] if kind else "question"
    return [Table(f"by {what}{over}", [what, *names], rows)]


def _columns(seeds: Mapping[str, Json]) -> list[str]:
    return [*(["mean", "std"] if len(seeds) > 1 else []), *seeds]


def _over_seeds(name: str, seeds: Mapping[str, Json]) -> list[str]:
    """Mean, deviation (of a sample) and each; only the one where there is one seed."""
    values = [scores.get(name) for scores in seeds.values()]
    known = [value for value in values if value is not None]
    summary: list[str] = []
    if len(values) > 1:
        whole = len(known) == len(values)
        summary = [_score(name, fmean(known)), _score(name, stdev(known))] if whole else ["", ""]
    return [*summary, *(_score(name, value) for value in values)]


def _score(name: str, value: float | None) -> str:
    if name in _NOT_SHARES and value is not None:
        return f"{value:.4g}"
    return figure(value)
