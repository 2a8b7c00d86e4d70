"""Tables of costs, neighbours and scores, printed."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from greenadapt.cli.output.console import print_table, print_text
from greenadapt.errors import as_percent, counted
from greenadapt.report.map_quality import new_words
from greenadapt.report.tables import VIEW_NAMES, Table, assessment, figure, score_tables, signed
from greenadapt.storage.files import Json
from greenadapt.vectors.neighbours import Neighbours

_MOST_COLUMNS = 10


def print_costs(rows: Sequence[Json]) -> None:
    """What stages cost, in one table per corpus and model, each with its sum."""
    if not rows:
        print_text(["no results in this workspace yet", ""])
        return
    groups = dict.fromkeys((row.get("corpus", ""), row.get("model", "")) for row in rows)
    for corpus, model in groups:
        title = f"Cost of {corpus}, {model}" if corpus else "Cost"
        _print_stages(title, [row for row in rows if (row.get("corpus", ""), row.get("model", "")) == (corpus, model)])
    sources = dict.fromkeys(row[name] for row in rows for name in ("energy_source", "co2_source"))
    print_text([f"Energy and CO2: {'; '.join(sources)}", ""])


def _print_stages(title: str, rows: Sequence[Json]) -> None:
    rows = [{**row, "stage": _named(row)} for row in rows]
    names = ("seconds", "cpu_seconds", "energy_kwh", "co2_kg", "usd_low", "usd_high")
    total: Json = {name: sum(row[name] for row in rows) for name in names}
    total |= {"peak_memory_bytes": max(row["peak_memory_bytes"] for row in rows), "stage": "all"}
    table = [
        [
            row["stage"],
            f"{row['seconds']:.1f} s",
            f"{row['cpu_seconds']:.1f} s",
            f"{row['peak_memory_bytes'] / 2**20:,.0f} MB",
            f"{_small(row['energy_kwh'] * 1000)} Wh",
            f"{_small(row['co2_kg'] * 1000)} g",
            f"${row['usd_low']:.4f}-{row['usd_high']:.4f}" if row["usd_high"] >= 1e-4 else "under $0.0001",
        ]
        for row in [*rows, total]
    ]
    print_table(title, ["stage", "time", "CPU time", "memory", "energy", "CO2", "cloud price"], table)


def _named(row: Json) -> str:
    """A stage, and the last part of its folder unless that is the stage's own in a workspace."""
    name = Path(row.get("folder") or row["stage"]).name
    return str(row["stage"]) if name == row["stage"] else f"{row['stage']} {name}"


def print_heldout(figures: Json, recipe: str) -> None:
    """How well rows find those of held-out words; nothing if there were too few to hold any out."""
    if not figures:
        return
    names = ("precision_at_1", "precision_at_5", "precision_at_10")
    rows = [
        [f"own row among {label}, {measure}", *(as_percent(found[name]) for name in names), f"{found['mrr']:.3f}"]
        for label, key in (("all base rows", "base_rows"), ("overlap rows", "overlap_rows"))
        for measure, found in figures[key].items()
    ]
    title = f"Rows by --rows {recipe} on {figures['n_heldout']:,} held-out words: cosine {figures['cosine']:.3f}"
    print_table(title, ["finding a word's", "first", "in 5", "in 10", "MRR"], rows)


def print_rows(found: Json) -> None:
    """How well recipes predict the rows of held-out words, see ``assess_rows``; the folder's recipe has a star."""
    first = next(iter(found["rows"].values()))
    counts = _bands(first["by_count"])
    columns = ["rows", "cosine", "first", "in 10", *(f"in 10: {count}" for count in counts)]
    table = []
    for name, figures in found["rows"].items():
        nearest = figures["base_rows"]["cosine"]
        row = [_starred(name, found), f"{figures['cosine']:.3f}"]
        row += [_percent(nearest["precision_at_1"]), _percent(nearest["precision_at_10"])]
        table.append([*row, *(_percent(band["precision_at_10"]) for band in figures["by_count"])])
    print_table(f"Rows predicted for {first['n_heldout']:,} held-out words of {found['base']}", columns, table)
    by_count = "; in 10: also of the words that occur so often in the corpus" if counts else ""
    print_text([
        f"* the rows of {found['folder']}; random: random rows of the same length as the model's, the least to beat",
        "cosine: of the predicted row and the model's own, mean; first, in 10: the own row is nearest to the predicted "
        f"one, or among the ten nearest{by_count}",
        "",
    ])  # fmt: skip
    _print_states(found, counts)
    if remarks := new_words(found):
        print_text([*remarks, ""])


def _print_states(found: Json, counts: Sequence[str]) -> None:
    """The substitution test, if torch is installed."""
    if (test := found["substitution"]) is None:
        return
    table = [
        [_starred(name, found), f"{one['state_cosine']:.3f}", *map(_cosine, one["state_by_count"])]
        for name, one in {**found["rows"], "in pieces": test["split"]}.items()
    ]
    text = f"in {counted(test['texts'], 'text')} of the corpus" if test["texts"] else "without a text around them"
    title = f"The model's last state at {counted(test['words'], 'held-out word')}, {text}"
    print_table(title, ["rows", "state", *(f"state: {count}" for count in counts)], table)
    print_text([
        "state: mean cosine of the state with the word's own row and with the predicted one; in pieces: the word has "
        "no row and is cut into pieces, the state is that at the first",
        "",
    ])  # fmt: skip


def _starred(name: str, found: Json) -> str:
    return f"{name} *" if name == found["recipe"] else name


def _bands(by_count: Sequence[Json]) -> list[str]:
    least = [band["min_count"] for band in by_count]
    return [f"{low} to {high - 1}" for low, high in pairwise(least)] + [f"{last} and more" for last in least[-1:]]


def _cosine(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def print_folds(found: Json) -> None:
    """What cross-validation found, see ``cross_validate``: a table, and what to do in a sentence or two."""
    base, *ours = found["rows"]
    rows = [[base["read_by"], figure(base["score"]), "", "", _seconds(base)]]
    for row in ours:
        name = f"adapted, read by {VIEW_NAMES[row['read_by']]}"
        rows.append([name, figure(row["score"]), signed(row["difference"]), _interval(row), _seconds(row)])
    columns = ["model", found["main"], "difference", "95 % interval", "training, predicting"]
    seeds = f", {counted(found['seeds'], 'seed')}" if found["seeds"] > 1 else ""
    title = f"{counted(found['folds'], 'fold')} of {counted(found['examples'], 'example')}{seeds}, scores in percent"
    print_table(title, columns, rows)
    print_text([*assessment(found), ""])


def _seconds(row: Json) -> str:
    return f"{row['training']:,.0f} s, {row['predicting']:,.1f} s"


def _percent(share: float | None) -> str:
    return "" if share is None else as_percent(share)


def _small(number: float) -> str:
    return f"{number:.3g}" if number >= 0.001 else "<0.001"


def print_neighbours(rows: Sequence[Neighbours], top: int) -> None:
    """One table per word, with a row per view and a column per neighbour; with many neighbours one table per view."""
    if top > _MOST_COLUMNS:
        for row in rows:
            nearest = [[label, f"{cosine:.2f}"] for label, cosine in row.neighbours]
            print_table(f"{_counted(row)}, {row.view}", ["nearest", "cosine"], nearest)
        return
    for word in dict.fromkeys(row.word for row in rows):
        views = [row for row in rows if row.word == word]
        cells = [[f"{label} {cosine:.2f}" for label, cosine in row.neighbours] for row in views]
        table = [[row.view, *near, *[""] * (top - len(near))] for row, near in zip(views, cells, strict=True)]
        print_table(_counted(views[0]), ["nearest", *map(str, range(1, top + 1))], table, numbers=False)


def _counted(row: Neighbours) -> str:
    """The word, how often it occurs, and how far mapped vectors of such words can be trusted."""
    if row.count is None:
        return row.word
    if row.precision_at_10 is None:
        return f"{row.word}, {row.count:,} times"
    share = f"{as_percent(row.precision_at_10, 0)} of held-out words about as frequent find their own row among ten"
    return f"{row.word}, {row.count:,} times ({share})"


def print_paper_costs(rows: Sequence[Json]) -> None:
    """The paper's table, recomputed, with the published figures."""
    table = [
        [
            f"{row['paper']} ({row['size']})",
            row["hardware"],
            f"{row['watts']:,.0f} W",
            f"{row['hours']:,.0f} h",
            f"{row['co2_lbs']:,.1f} lbs ({row['published_co2_lbs']:,})",
            f"${row['usd_low']:,.0f} to {row['usd_high']:,.0f} ({_range(row['published_usd'])})",
        ]
        for row in rows
    ]
    title = "Table 1 of arXiv 2004.03354 by the same formula (published figures in brackets)"
    print_table(title, ["model", "hardware", "power", "time", "CO2", "cloud price"], table)


def _range(numbers: Sequence[int]) -> str:
    return " to ".join(f"{number:,}" for number in numbers)


def print_scores(scores: Json) -> None:
    """The scores of a fine-tuned model (its ``scores.json``), see ``score_tables``."""
    advice = "give the tasks test or dev files" if "tasks" in scores else "give --test or --dev"
    tables = score_tables(scores)
    if not tables:
        print_text([f"nothing was scored: {advice}", ""])
    print_tables(tables)


def print_evaluated(scores: Json) -> None:
    """The same for one labelled file (see ``Evaluated``), and the interval of the main score."""
    print_tables(score_tables(scores, scores["file"]))
    if "read_twice" in scores:
        print_text([f"{figure(scores['read_twice'])} % of the examples were read in both tokenizations", ""])
    intervals, n_seeds = scores["intervals"], len(scores["seeds"])
    # A model without added words has one view, whatever the pool.
    ends = intervals.get(scores["pool"], intervals.get("base") if len(intervals) == 1 else None)
    if ends is None:
        return
    main, (low, high) = scores["main"], map(figure, ends)
    drawn = f"{scores['examples']:,} examples" if scores["resampled"] == "examples" else "whole contexts"
    drawn += f" and {n_seeds} seeds" if n_seeds > 1 else ""
    of = "mean " if n_seeds > 1 else ""
    print_text([f"{of}{main} {figure(scores['mean'][main])}, 95 % interval {low} to {high}, by resampling {drawn}", ""])


def print_comparison(rows: Sequence[Json]) -> None:
    """The first model's score, those of the others, the first one's difference to each and how sure it is.

    A row has ``model``, ``score``, ``std`` (``None`` for one seed), all but the first also ``difference``, ``low`` and
    ``high``; of three, the first has ``gap_covered``.
    """
    ours = rows[0]["model"]
    table = [
        [row["model"], figure(row["score"]), figure(row["std"]), signed(row.get("difference")), _interval(row)]
        for row in rows
    ]
    columns = ["model", "score", "std", f"{ours} minus it", "95 % interval"]
    print_table("Comparison on the test set, in percent", columns, table)
    print_text([*(_in_words(ours, row) for row in rows[1:]), *_gap(rows), ""])


def print_tables(tables: Iterable[Table]) -> None:
    """Tables of a report, as they are."""
    for table in tables:
        print_table(table.title, table.columns, table.rows)


def _interval(row: Json) -> str:
    return f"{signed(row['low'])} to {signed(row['high'])}" if "low" in row else ""


def _in_words(model: str, row: Json) -> str:
    difference, other = row["difference"], row["model"]
    if row["low"] <= 0 <= row["high"]:
        return (
            f"{model} minus {other}: {signed(difference)} points, but the interval includes zero: "
            f"these {row.get('resampled', 'examples')} and seeds do not show which is better"
        )
    better = "better" if difference > 0 else "worse"
    return f"{model} is {better} than {other} by {figure(abs(difference))} points"


def _gap(rows: Sequence[Json]) -> list[str]:
    if "gap_covered" not in rows[0]:
        return []
    ours, base, reference = (row["model"] for row in rows)
    covered = rows[0]["gap_covered"]
    if covered is None:
        return [f"{reference} is not better than {base}: there is no gap to close"]
    return [f"{ours} closes {as_percent(covered, 0)} of the gap from {base} to {reference}"]
