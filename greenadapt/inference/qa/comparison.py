"""Scores of answers with their intervals, and the comparison of a model's answers with those of its base model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.tasks.metrics import interval, paired, resampled

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
