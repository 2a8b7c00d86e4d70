"""What ``gmap.py`` prints: the tables of arXiv 2212.03613, published figures and ours."""

import numpy as np
from tables import aligned

from greenadapt.storage.files import Json

NAMES = {
    "fine-tuning": "Fine-Tuning",
    "dapt": "DAPT",
    "tapt": "TAPT",
    "dapt+tapt": "DAPT+TAPT",
    "logits": "Logits Fusion",
    "ensemble": "Ensemble LMs",
    "interpolation": "Interpolation",
    "single": "G-MAP, single",
    "multiple": "G-MAP, multiple",
    "gated": "G-MAP, gated",
    "chunk": "G-MAP, chunk-gated",
    "g-map*": "G-MAP*",
    "unfrozen": "G-MAP w/o frozen",
    "cross": "Cross-attention",
    "gate": "Gate-attention",
}
"""Method → its name in the paper, which has no interpolation."""
TABLES = {
    "Table 1": ("fine-tuning", "dapt", "logits", "ensemble", "interpolation", "single", "multiple", "gated", "chunk"),
    "Table 2": ("tapt", "dapt+tapt", "g-map*"),
    "Table 4": ("dapt", "unfrozen", "chunk"),
    "Table 5": ("cross", "gate", "chunk"),
}
COLUMNS = ("CP", "RCT", "CI", "SE", "HP", "AG", "AM", "IMDB")
FOLDERS = {
    "chemprot": "CP", "rct-20k": "RCT", "citation_intent": "CI", "sciie": "SE", "hyperpartisan_news": "HP", "ag": "AG",
    "amazon": "AM", "imdb": "IMDB",
}  # fmt: skip
"""Names that the data sets have in their usual release → columns of the paper."""
MICRO = ("CP", "RCT")
# Mean and deviation over five seeds, in the order of COLUMNS; tables 4 and 5 have the first four.
PUBLISHED = {
    "fine-tuning": "81.9 .1  87.2 .1  63.0 5.8  77.3 1.9  86.6 .9  93.9 .2  65.1 3.4  95.0 .2",
    "dapt": "84.2 .2  87.6 .1  75.4 2.5  80.8 1.5  88.2 5.9  93.9 .2  66.5 1.4  95.4 .1",
    "logits": "84.4 .3  87.6 .1  77.5 2.5  82.9 1.3  91.8 2.5  93.8 .1  67.6 .2  95.1 .2",
    "ensemble": "84.6 .2  87.4 .2  76.2 2.2  82.6 1.0  91.4 2.8  93.9 .2  67.5 1.1  95.1 .2",
    "single": "84.7 .3  87.8 .1  78.6 2.3  83.2 .6  93.3 1.6  94.0 .1  68.5 .6  95.4 .1",
    "multiple": "84.7 .4  87.7 .1  74.9 1.3  82.0 1.1  92.2 2.3  93.8 .2  67.6 .6  95.2 .2",
    "gated": "84.8 .2  87.8 .1  77.9 1.5  83.2 1.3  93.2 2.0  94.0 .2  68.1 .5  95.4 .2",
    "chunk": "85.0 .3  87.9 .2  79.4 1.0  83.8 .8  95.2 .0  94.1 .2  69.0 .8  95.6 .2",
    "tapt": "82.6 .4  87.7 .1  67.4 1.8  79.3 1.5  90.4 5.2  94.5 .1  68.5 1.9  95.5 .1",
    "dapt+tapt": "84.4 .4  87.8 .1  75.6 3.8  81.3 1.7  90.0 6.6  94.6 .2  68.7 1.8  95.6 .1",
    "g-map*": "85.1 .3  87.9 .0  79.6 2.2  83.9 1.1  95.2 .0  94.6 .1  69.9 .3  95.8 .1",
    "unfrozen": "84.3 .5  87.3 .3  78.1 2.2  82.4 1.1",
    "cross": "82.8 .4  86.6 .1  73.5 2.0  82.2 1.0",
    "gate": "84.7 .3  87.6 .1  78.1 1.4  83.4 .7",
}
NOTE = """Points of F1, mean ± deviation over seeds, and how many; "paper" has the published figures, of RoBERTa-base
and five seeds.
"""


def published(method: str, dataset: str) -> tuple[float, float] | None:
    """Mean and deviation that the paper has; ``None`` where it has none."""
    numbers = list(map(float, PUBLISHED.get(method, "").split()))
    place = 2 * COLUMNS.index(FOLDERS[dataset]) if dataset in FOLDERS else len(numbers)
    return (numbers[place], numbers[place + 1]) if place < len(numbers) else None


def metric(dataset: str) -> str:
    """Which F1 the paper has for a data set."""
    return "micro_f1" if FOLDERS.get(dataset) in MICRO else "macro_f1"


Done = dict[str, dict[str, list[Json]]]
"""Data set → method → records of its seeds."""


def report(done: Done) -> str:
    """The tables of what is finished, and the seconds of a run."""
    used = {method for of_set in done.values() for method in of_set}
    tables = []
    for title, methods in TABLES.items():
        if own := [method for method in methods if method in used]:
            rows = [[title, *(cell for name in done for cell in _head(name))]]
            for method in own:
                rows.append([NAMES[method], *(cell for name in done for cell in _cells(done, name, method))])
            tables.append(aligned(rows))
    seconds = [
        [NAMES[method], *(_seconds(done[name].get(method)) for name in done)] for method in NAMES if method in used
    ]
    tables.append(aligned([["seconds a run", *done], *seconds]))
    return "\n".join([*tables, NOTE.strip()]) + "\n"


def _head(dataset: str) -> list[str]:
    """What stands above the cells of a data set, which the paper need not have."""
    ours = f"{dataset}, {metric(dataset).replace('_f1', ' F1')}"
    return [ours, "paper"] if dataset in FOLDERS else [ours]


def _cells(done: Done, dataset: str, method: str) -> list[str]:
    """Ours, and the paper's."""
    records = done[dataset].get(method, [])
    scores = [100 * record["scores"][metric(dataset)] for record in records]
    deviation = f" ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
    ours = f"{np.mean(scores):.1f}{deviation} ({len(scores)})" if scores else ""
    theirs = published(method, dataset)
    paper = f"{theirs[0]:.1f} ± {theirs[1]:.1f}" if theirs else ""
    return [ours, paper] if dataset in FOLDERS else [ours]


def _seconds(records: list[Json] | None) -> str:
    return f"{np.mean([record['seconds'] for record in records]):.1f}" if records else ""
