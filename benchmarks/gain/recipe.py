"""Peak rate and steps, chosen on development sets: one number of steps, and a rate for the base model and for ``both``.

Bias-corrected Adam, a rising rate in the first tenth of the steps and a falling one after it, and steps enough, so that
few labels do not leave a model untrained (arXiv 2006.04884).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gain.arms import BASE, CONTROL
from greenadapt.config import TrainConfig
from greenadapt.report.tables import figure
from greenadapt.store.files import Json

ADAPTED = "both"
TRIED = (BASE, ADAPTED)
"""The arms for which a rate is chosen: base models have that of the first, all others that of the second."""
Point = tuple[int, float]
"""Steps and peak rate."""


@dataclass(frozen=True)
class Recipe:
    """Steps and peak rates of the arms; all arms make the same number of steps."""

    steps: int
    rates: Mapping[str, float]
    """Arm of ``TRIED`` → peak rate."""

    def training(self, arm: str, shared: TrainConfig) -> TrainConfig:
        """The settings of an arm; steps alone say how long it is trained."""
        rate = self.rates[BASE if arm in (BASE, CONTROL) else ADAPTED]
        return replace(shared, learning_rate=rate, epochs=self.steps, max_steps=self.steps)

    def __str__(self) -> str:
        rates = ", ".join(f"{arm} at {rate:g}" for arm, rate in self.rates.items())
        return f"{self.steps} steps, {rates}"


UNTRIED = Recipe(600, dict.fromkeys(TRIED, 1e-4))
"""For a model without a grid."""


@dataclass(frozen=True)
class Tried:
    """The development scores of the grid points that both arms have, under the first seed, on all sets."""

    sets: Sequence[str]
    scores: Mapping[str, Mapping[Point, Mapping[tuple[int, str], Json]]]
    """Arm → point → seed and set → record; the same seeds and sets everywhere."""

    @classmethod
    def of(cls, records: Iterable[Json], batch_size: int) -> "Tried":
        """The grid in these records of one model and budget; points that are not complete are left out."""
        by_point: dict[str, dict[Point, dict[tuple[int, str], Json]]] = {arm: {} for arm in TRIED}
        for record in records:
            if record["batch_size"] == batch_size and record["arm"] in by_point:
                point = by_point[record["arm"]].setdefault((record["steps"], record["learning_rate"]), {})
                point[record["seed"], record["set"]] = record
        runs = [runs_of_point for points in by_point.values() for runs_of_point in points.values()]
        sets = list(dict.fromkeys(name for runs_of_point in runs for _, name in runs_of_point))
        first = (
            {(min(seed for runs_of_point in runs for seed, _ in runs_of_point), name) for name in sets}
            if runs
            else set()
        )
        complete = [
            point for point in by_point[BASE] if all(first <= by_point[arm].get(point, {}).keys() for arm in TRIED)
        ]
        keys = [by_point[arm][point].keys() for arm in TRIED for point in complete]
        shared = set.intersection(*map(set, keys)) if keys else set()
        scores = {
            arm: {point: {key: by_point[arm][point][key] for key in sorted(shared)} for point in complete}
            for arm in TRIED
        }
        return cls(sets, scores)

    def mean(self, arm: str, point: Point) -> float | None:
        """The mean development score; ``None`` if a run found no entity."""
        runs = self.scores[arm][point].values()
        return (
            None
            if any(record["entities"] == 0 for record in runs)
            else float(np.mean([record["dev"]["mean"] for record in runs]))
        )

    @property
    def choice(self) -> Recipe | None:
        """The steps with the best sum over both arms, each at its best rate; of equal ones the first, in order."""
        best: dict[int, dict[str, tuple[float, float]]] = {}
        for arm in TRIED:
            for steps, rate in sorted(self.scores[arm]):
                mean = self.mean(arm, (steps, rate))
                if mean is not None and mean > best.setdefault(steps, {}).get(arm, (-1.0,))[0]:
                    best[steps][arm] = mean, rate
        complete = {steps: arms for steps, arms in best.items() if len(arms) == len(TRIED)}
        if not complete:
            return None
        steps = max(complete, key=lambda steps: sum(mean for mean, _ in complete[steps].values()))
        return Recipe(steps, {arm: complete[steps][arm][1] for arm in TRIED})

    def table(self) -> str:
        """A row for each arm and point, in points of F1."""
        lines = [
            f"| steps | rate | arm | {' | '.join(self.sets)} | mean | runs | without an entity | seconds a run |",
            "|---" * (len(self.sets) + 7) + "|",
        ]
        for point in sorted(self.scores[BASE]):
            for arm in TRIED:
                runs = self.scores[arm][point]
                by_set = [np.mean([record["dev"]["mean"] for (_, name), record in runs.items() if name == set_name])
                          for set_name in self.sets]  # fmt: skip
                cells = [f"{point[0]}", f"{point[1]:g}", arm, *map(figure, by_set)]
                mean = np.mean([record["dev"]["mean"] for record in runs.values()])
                cells += [figure(mean), f"{len(runs)}"]
                cells += [f"{sum(record['entities'] == 0 for record in runs.values())}"]
                cells += [f"{np.mean([record['cost']['seconds'] for record in runs.values()]):.0f}"]
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)
