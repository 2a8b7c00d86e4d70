"""The table of ``engines.py``."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from tables import aligned

from greenadapt.storage.files import Json

_SETTING = ("dim", "workers", "epochs", "alpha")
_PEER = "gensim"
NOTE = """Words a second: median over runs, beside them those of gensim times how much, by medians and for each pair of
runs; MB: the most that a run took; the others: mean ± standard deviation over the runs that measure quality."""


def table(results: Sequence[tuple[Json, Json]]) -> str:
    """A row for each setting and side, from the requests and results of runs, in the order of the runs."""
    groups: dict[tuple[int, ...], dict[str, dict[int, Json]]] = defaultdict(lambda: defaultdict(dict))
    for settings, result in results:
        groups[tuple(settings[name] for name in _SETTING)][settings["side"]][settings["seed"]] = result
    figures = list(dict.fromkeys(name for _, result in results for name in result["quality"]))
    rows = [[*_SETTING, "engine", "words/s", "to gensim (each pair)", "MB", *figures]]
    for setting, sides in groups.items():
        for side, runs in sorted(sides.items()):
            words = statistics.median(run["words"] for run in runs.values())
            speed = [f"{words:,.0f}", _ratio(runs, sides.get(_PEER, {})), _memory(runs)]
            rows.append([*map(str, setting), side, *speed, *(_figure(name, runs) for name in figures)])
    notes = dict.fromkeys(note for _, result in results for note in result["notes"])
    return "\n".join([aligned(rows), NOTE, *notes])


def _ratio(runs: dict[int, Json], peers: dict[int, Json]) -> str:
    pairs = [runs[seed]["words"] / peers[seed]["words"] for seed in runs if seed in peers]
    if not pairs:
        return ""
    speed, peer_speed = (
        statistics.median(run["words"] for run in runs_of_side.values()) for runs_of_side in (runs, peers)
    )
    return f"{speed / peer_speed:.2f} ({', '.join(f'{pair:.2f}' for pair in pairs)})"


def _memory(runs: dict[int, Json]) -> str:
    return f"{max(run['memory'] for run in runs.values()):,.0f}"


def _figure(name: str, runs: dict[int, Json]) -> str:
    values = [run["quality"][name] for run in runs.values() if name in run["quality"]]
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread}" if values else ""
