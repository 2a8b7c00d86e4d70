"""Print results, scores, answers and tables."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from greenadapt.cli.output.console import is_quiet, is_verbose, print_json, print_lines, print_table
from greenadapt.cost import total
from greenadapt.errors import as_percent, byte_size, duration, pluralize
from greenadapt.report.tables import (
    VIEW_NAMES,
    Table,
    answer_lines,
    assessment,
    comparison_tables,
    describe_changes,
    figure,
    new_words_sentence,
    printable,
    r2_text,
    score_tables,
    scores_table,
    with_sign,
)
from greenadapt.store.files import Json
from greenadapt.store.results import Result
from greenadapt.store.workspace import is_key_of
from greenadapt.vectors.neighbours import Neighbours
from greenadapt.vectors.quality import RARE


def describe(result: Result) -> dict[str, Any]:
    """A result as JSON: stage, status, folder, counts, facts, cost."""
    manifest = result.manifest
    return {
        "stage": manifest.stage,
        "status": "done" if result.fresh else "up to date",
        "folder": str(result.path),
        "config": manifest.config,
        "counts": manifest.counts,
        "facts": manifest.facts,
        "cost": manifest.cost,
    }


def print_results(results: Sequence[Result], as_json: bool) -> None:
    """Print the last result as JSON, with the earlier ones under ``stages``, or unless ``--quiet`` all as text."""
    if as_json:
        last = describe(results[-1])
        if len(results) > 1:
            last["stages"] = [describe(result) for result in results[:-1]]
        print_json(last)
        return
    if not is_quiet():
        print_lines(line for result in results for line in _lines(result, is_last=result is results[-1]))


def _lines(result: Result, *, is_last: bool) -> list[str]:
    """What a stage made, and where; with --verbose all of its counts and figures, too."""
    manifest = result.manifest
    seconds = manifest.cost.get("seconds", 0.0)
    status = f"done in {seconds:.1f} s" if result.fresh else "up to date"
    describe_stage = _counts_in_words if is_verbose() else _SUMMARIES.get(manifest.stage, _without_rows)
    lines = [f"{manifest.stage}: {status}; {describe_stage(manifest.counts)}"]
    if added := manifest.facts.get("added"):
        lines += [f"  most frequent: {', '.join(added['frequent'])}", f"  oddest: {', '.join(added['oddest'])}"]
    heldout = (manifest.facts.get("heldout") or {}).get("figures")
    lines += [_quality(heldout)] if heldout and (is_last or is_verbose()) else []
    lines += _recipes(manifest.facts.get("rows"))
    if pieces := manifest.facts.get("pieces_per_word"):
        lines.append(f"  pieces per word of the text: {pieces['before']:.2f} before, {pieces['after']:.2f} now")
    if adapter := manifest.facts.get("adapter"):
        lines += _adapter(adapter)
    again = [] if result.fresh else [f"  to make it again, remove {result.folder}"]
    return [*lines, f"  {result.path}", *again]


def _corpus_in_words(counts: Json) -> str:
    n_duplicates, words = counts["duplicates"], pluralize(counts["tokens"], "word")
    kept = f"{pluralize(counts['documents'] - n_duplicates, 'document')}, {words}"
    return kept + (f"; {pluralize(n_duplicates, 'duplicate')} left out" if n_duplicates else "")


def _without_rows(counts: Json) -> str:
    return _counts_in_words({name: value for name, value in counts.items() if not name.startswith("rows")})


_SUMMARIES: dict[str, Callable[[Json], str]] = {
    "corpus": _corpus_in_words,
    "w2v": lambda counts: f"{pluralize(counts['words'], 'word vector')}",
    "align": lambda counts: f"fitted on {pluralize(counts['overlap'], 'word')} that the model knows",
    "expand": lambda counts: f"{pluralize(counts['words'], 'word')} added",
}
"""Stage → its counts that a user decides on, in words."""


def _counts_in_words(counts: Json) -> str:
    """A result's counts in one line: ``words 85,017, dim 384``."""
    known = {name.replace("_", " "): value for name, value in counts.items() if value is not None}
    return ", ".join(f"{name} {value:,}" if type(value) is int else f"{name} {value}" for name, value in known.items())


def _quality(figures: dict[str, Any]) -> str:
    base = figures["base_rows"]["cosine"]
    return (
        f"  on {figures['n_heldout']:,} held-out words: {r2_text(figures)}, cosine {figures['cosine']:.3f}, "
        f"own row first for {as_percent(base['precision_at_1'])}, among ten for {as_percent(base['precision_at_10'])}"
    )


def _recipes(rows: Json | None) -> list[str]:
    """How often the recipe of the new rows predicts rows of known words; with --verbose the cosines of all recipes."""
    if not rows or not rows["heldout"]:
        return []
    lines = []
    if figures := rows["heldout"].get(rows["recipe"]):
        share = as_percent(figures["base_rows"]["cosine"]["precision_at_10"])
        n_words = pluralize(figures["n_heldout"], "known word")
        lines.append(f"  test on {n_words}: their own row is among the ten nearest to the predicted one for {share}")
    if is_verbose():
        cosines = ", ".join(f"{name} {scores['cosine']:.3f}" for name, scores in rows["heldout"].items())
        lines.append(f"  mean cosine of predicted and own rows: {cosines}")
    return lines


def _adapter(counts: Json) -> list[str]:
    shape = [counts["adapter"]]
    shape += [f"width {counts['size']}"] if counts["size"] is not None else []
    shape += [pluralize(counts["heads"], "head")] if counts["heads"] is not None else []
    shape += [f"layers {_ranges(counts['layers'])}"] if counts["layers"] else []
    return [
        f"  adapter {', '.join(shape)}: {counts['weights']:,} weights per task, {counts['parameters']:,} with "
        f"biases and layer norms",
        f"  encoder: {counts['base_parameters']:,} weights, {counts['ratio']:.4f} times as many with the adapters of "
        f"{pluralize(counts['tasks'], 'task')}; heads are not counted",
    ]


def _ranges(layers: Sequence[int]) -> str:
    """``1-12``, or all numbers if they are not consecutive."""
    if len(layers) > 1 and layers[-1] - layers[0] == len(layers) - 1:
        return f"{layers[0]}-{layers[-1]}"
    return ",".join(map(str, layers))


_KINDS = {
    "result": ("unnamed result", "unnamed results"),
    "unfinished": ("unfinished result", "unfinished results"),
    "input": ("stored input", "stored inputs"),
}
"""Kinds of what clean removes: singular and plural."""


def print_status(rows: Sequence[Json], root: Path | None) -> None:
    """Print the rows of ``status``; ``root`` is HOME, if they are of it."""
    if root is not None:
        print_lines([f"Workspace {root}" if rows else f"Workspace {root}: nothing in it yet", ""])
    results = [row for row in rows if row["kind"] == "result"]
    for title, group in ({"": results} if root is None and results else _by_model(results)).items():
        names = [_name_stage(row) for row in group]
        writers: dict[str, Callable[[Any], str]] = {"made": local_time, "bytes": byte_size, "seconds": duration}
        cells = [
            [name, row["state"], *("" if row[key] is None else write(row[key]) for key, write in writers.items())]
            for name, row in zip(names, group, strict=True)
        ]
        print_table(title, ["stage", "state", "made", "size", "time"], cells)
        reasons = [f"  {name}: {row['why']}" for name, row in zip(names, group, strict=True) if row["why"]]
        print_lines([*reasons, ""] if reasons else [])
    for row in rows:
        if row["kind"] == "unfinished":
            print_lines(_describe_unfinished(row))
    if unneeded := [row for row in rows if row["kind"] == "unneeded"]:
        kinds = [f"{pluralize(row['files'], *_KINDS[row['what']])} ({byte_size(row['bytes'])})" for row in unneeded]
        print_lines([f"greenadapt clean would remove: {', '.join(kinds)}"])


def _by_model(rows: Sequence[Json]) -> dict[str, list[Json]]:
    """The rows by their corpus and model, which results in other folders than HOME do not have."""
    groups: dict[str, list[Json]] = {}
    for row in rows:
        groups.setdefault(", ".join(filter(None, (row.get("corpus"), row.get("model")))), []).append(row)
    return groups


def _describe_unfinished(row: Json) -> list[str]:
    spent = f", {duration(row['seconds'])} so far" if row["seconds"] else ""
    text = f"{row['name']}: {byte_size(row['bytes'])}, changed {local_time(row['changed'])}{spent}"
    if row["writer"]:
        return [f"Being made: {text} by {row['writer']}", f"  {row['folder']}"]
    return [f"Unfinished: {text}; the same command resumes it; or remove the folder", f"  {row['folder']}"]


def local_time(iso: str) -> str:
    """An ISO time in the local time zone, to the minute."""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M")


def print_cleaning(rows: Sequence[Json]) -> None:
    """Print the rows that ``clean`` would remove."""
    for row in rows:
        print_lines([f"{_KINDS[row['what']][0]}: {byte_size(row['bytes'])}", f"  {row['path']}"])
    print_lines(_sum("To remove", rows))


def print_removed(rows: Sequence[Json], as_json: bool) -> None:
    """Print the rows that ``clean`` removed, and those that it kept."""
    if as_json:
        print_json(*rows)
        return
    print_lines(_sum("Removed", [row for row in rows if row["action"] == "removed"]) if rows else ["nothing to remove"])
    print_lines(line for row in rows if row["why"] for line in (f"Kept: {row['why']}", f"  {row['path']}"))


def _sum(verb: str, rows: Sequence[Json]) -> list[str]:
    count = pluralize(len(rows), "file or folder", "files and folders")
    return [f"{verb}: {count}, {byte_size(sum(row['bytes'] for row in rows))}"]


def print_costs(rows: Sequence[Json]) -> None:
    """Print the cost of stages, in one table per corpus and model, with its sum."""
    if not rows:
        print_lines(["no results in this workspace yet", ""])
        return
    for title, group in _by_model(rows).items():
        named = [{**row, "stage": _name_stage(row)} for row in group]
        table = [
            [
                row["stage"],
                f"{row['seconds']:.1f} s",
                f"{row['cpu_seconds']:.1f} s",
                f"{row['peak_memory_bytes'] / 1e6:,.0f} MB",
                f"{_format_small(row['energy_kwh'] * 1000)} Wh",
                f"{_format_small(row['co2_kg'] * 1000)} g",
                f"${row['usd_low']:.4f}-{row['usd_high']:.4f}" if row["usd_high"] >= 1e-4 else "under $0.0001",
            ]
            for row in [*named, {**asdict(total(group)), "stage": "all"}]
        ]
        columns = ["stage", "time", "CPU time", "memory", "energy", "CO2", "cloud price"]
        print_table(f"Cost of {title}" if title else "Cost", columns, table)
    sources = dict.fromkeys(row[name] for row in rows for name in ("energy_source", "co2_source"))
    print_lines([f"Energy and CO2: {'; '.join(sources)}", ""])


def _name_stage(row: Json) -> str:
    """A stage, and the last part of its folder unless that is the stage's own in a workspace."""
    name = Path(row.get("folder") or row["stage"]).name
    return str(row["stage"]) if is_key_of(name, row["stage"]) else f"{row['stage']} {name}"


def print_rows(scores: Json) -> None:
    """Print how well recipes predict rows of held-out words, see ``assess_rows``; the folder's recipe has a star."""
    names = {name: f"{name} *" if name == scores["recipe"] else name for name in scores["rows"]}
    table = []
    for name, figures in scores["rows"].items():
        nearest = figures["base_rows"]["cosine"]
        shares = [as_percent(nearest[key]) for key in ("precision_at_1", "precision_at_10")]
        table.append([names[name], f"{figures['cosine']:.3f}", *shares])
    n_heldout = next(iter(scores["rows"].values()))["n_heldout"]
    title = f"Rows predicted for {n_heldout:,} held-out words of {scores['base']}"
    print_table(title, ["rows", "cosine", "first", "in 10"], table)
    print_lines([
        f"* the recipe of {scores['folder']}; random: rows that are random but as long as the model's, to be beaten",
        "cosine: mean cosine of a predicted row and the model's own row of the word; first, in 10: share of the words "
        "whose own row is the nearest to the predicted one, or one of the ten nearest; --json: also by count",
        "",
    ])  # fmt: skip
    if sentence := new_words_sentence(scores):
        print_lines([sentence, ""])


def print_folds(result: Json) -> None:
    """Print the results of ``cross_validate``: the answer in a sentence or two, and a table."""
    print_lines([*assessment(result), ""])
    base, *ours = result["rows"]
    rows = [[base["read_by"], figure(base["score"]), "", ""]]
    for row in ours:
        name = f"adapted, read by {VIEW_NAMES[row['read_by']]}"
        rows.append([name, figure(row["score"]), with_sign(row["difference"]), _interval(row)])
    columns = ["model", result["main"], "difference", "95 % interval"]
    seeds = f", {pluralize(result['seeds'], 'seed')}" if result["seeds"] > 1 else ""
    title = (
        f"{pluralize(result['folds'], 'fold')} of {pluralize(result['examples'], 'example')}{seeds}, scores in percent"
    )
    print_table(title, columns, rows)


def _format_small(number: float) -> str:
    return f"{number:.3g}" if number >= 0.001 else "<0.001"


def print_neighbours(rows: Sequence[Neighbours]) -> None:
    """Print a table per word, with a column per view, nearest first."""
    for word in dict.fromkeys(row.word for row in rows):
        views = [row for row in rows if row.word == word]
        columns = [[f"{label} {cosine:.2f}" for label, cosine in row.neighbours] for row in views]
        count = views[0].count
        title = word if count is None else f"{word}, {pluralize(count, 'time')}{', rare' if count < RARE else ''}"
        lines = [[n, *cells] for n, cells in enumerate(zip_longest(*columns, fillvalue=""), start=1)]
        print_table(title, ["nearest", *(row.view for row in views)], lines, numbers=False)


def print_scores(scores: Json) -> None:
    """Print the scores of a fine-tuned model (its ``scores.json``), see ``score_tables``."""
    if not (tables := score_tables(scores)):
        advice = "give the tasks test or dev files" if "tasks" in scores else "give --test or --dev"
        print_lines([f"nothing was scored: {advice}", ""])
    print_tables(tables)


def print_evaluated(scores: Json) -> None:
    """Print the scores on a labelled file (see ``evaluate``), and the interval of the main score."""
    print_tables(score_tables(scores, scores["file"]))
    if "read_twice" in scores:
        print_lines([f"{figure(scores['read_twice'])} % of the examples were read in both tokenizations", ""])
    intervals, n_seeds = scores["intervals"], len(scores["seeds"])
    # A model without added words has one view, whatever the pool.
    ends = intervals.get(scores["pool"], intervals.get("base") if len(intervals) == 1 else None)
    if ends is not None:
        print_interval(scores["main"], scores["mean"][scores["main"]], ends, scores, n_seeds)


def print_interval(main: str, score: float, ends: Sequence[float], resampling: Json, n_seeds: int) -> None:
    """Print the 95 % interval of a main ``score``; ``resampling`` has ``examples`` and what was ``resampled``."""
    low, high = map(figure, ends)
    unit = resampling["resampled"]
    drawn = f"{resampling['examples']:,} examples" if unit == "examples" else f"whole {unit}"
    drawn += f" and {n_seeds} seeds" if n_seeds > 1 else ""
    of = "mean " if n_seeds > 1 else ""
    print_lines([f"{of}{main} {figure(score)}, 95 % interval {low} to {high}, by resampling {drawn}", ""])


def print_comparison(rows: Sequence[Json]) -> None:
    """The first model's score, those of the others, the first one's difference to each and how sure it is.

    A row has ``model``, ``score``, ``std`` (``None`` for one seed), all but the first also ``difference``, ``low`` and
    ``high``; of three, the first has ``gap_covered``.
    """
    ours = rows[0]["model"]
    table = [
        [row["model"], figure(row["score"]), figure(row["std"]), with_sign(row.get("difference")), _interval(row)]
        for row in rows
    ]
    columns = ["model", "score", "std", f"{ours} minus it", "95 % interval"]
    print_table("Comparison on the test set, in percent", columns, table)
    print_lines([*(_say_difference(ours, row) for row in rows[1:]), *_gap(rows), ""])


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables of a report."""
    for table in tables:
        print_table(table.title, table.columns, table.rows)


def _interval(row: Json) -> str:
    return f"{with_sign(row['low'])} to {with_sign(row['high'])}" if "low" in row else ""


def _say_difference(first: str, row: Json) -> str:
    difference, model = row["difference"], row["model"]
    if row["low"] <= 0 <= row["high"]:
        return (
            f"{first} minus {model}: {with_sign(difference)} points, but the interval includes zero: "
            f"these {row.get('resampled', 'examples')} and seeds do not show which is better"
        )
    better = "better" if difference > 0 else "worse"
    return f"{first} is {better} than {model} by {figure(abs(difference))} points"


def _gap(rows: Sequence[Json]) -> list[str]:
    if "gap_covered" not in rows[0]:
        return []
    ours, base, reference = (row["model"] for row in rows)
    covered = rows[0]["gap_covered"]
    if covered is None:
        return [f"{reference} is not better than {base}: there is no gap to close"]
    return [f"{ours} closes {as_percent(covered, 0)} of the gap from {base} to {reference}"]


def print_summary(summary: Json) -> None:
    """Print the scores and the comparison with the base model, if ``summary`` has them."""
    if "scores" in summary:
        print_tables([scores_table(summary["scores"])])
    if "comparison" in summary:
        print_tables(comparison_tables(summary["comparison"]))
        print_lines([describe_changes(summary["comparison"]), ""])


def print_answers(row: Json) -> None:
    """Print a question, the best answer marked in its sentence, and further answers.

    The marks are ``[[`` and ``]]`` where there are no styles.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    begin, end = ("", "") if console.color_system else ("[[", "]]")
    # Captured, since what is written to a terminal while a bar is shown there has to go above it.
    with console.capture() as drawn:
        console.print(Text(printable(row["question"]), style="bold"), soft_wrap=True)
        for line in answer_lines(row):
            answer = f"{begin}{line.answer}{end}" if line.before or line.after else line.answer
            text = Text(f"  {line.label}{line.before}").append(answer, style="bold green").append(line.after)
            console.print(text.append(f"  ({line.note})" if line.note else "", style="dim"), soft_wrap=True)
    print_lines([drawn.get()], styled=True)
