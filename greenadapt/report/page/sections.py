"""The sections of the page: corpus, words, vectors, tasks, examples and costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np

from greenadapt.cost import total
from greenadapt.errors import as_percent, counted
from greenadapt.report.page.blocks import Block, Example, Examples, Facts, Heading, Paragraph, Search, Section
from greenadapt.report.page.charts import Axis, Rows, bars, intervals, lines, scatter
from greenadapt.report.tables import (
    Table,
    explains_nothing,
    loss_tables,
    parts_over_seeds,
    score_name,
    score_tables,
    signed,
)
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.tasks.classification import Text
from greenadapt.tasks.conll import entities
from greenadapt.tasks.questions import Question

_POINTS = 60  # of the plot of ranks
_MOST_FREQUENT = 5  # pieces that are told apart, of the words of a corpus
_MOST_WORDS = 8  # the same of added words
_FREQUENT = 15  # words listed
_FEWEST_LETTERS = 4  # of these words
_STOP_WORDS = frozenset((
    "about", "after", "also", "because", "been", "before", "being", "between", "both", "could", "does", "during",
    "each", "either", "from", "have", "having", "here", "however", "into", "itself", "just", "like", "made", "many",
    "more", "most", "much", "must", "only", "other", "over", "same", "should", "since", "some", "such", "than",
    "that", "their", "them", "then", "there", "these", "they", "this", "those", "through", "under", "used", "uses",
    "using", "very", "were", "what", "when", "where", "whether", "which", "while", "will", "with", "within",
    "without", "would", "your",
))  # fmt: skip
"""English words of four letters or more that are in every text."""
_EXAMPLES = 4  # added words of a number of pieces
_LONGEST = 600  # characters of an example
_BINS = 40  # of lengths of rows
_BANDS = (1, 5, 10, 20, 50, 100, 500, 1000, 5000)  # of counts of added words
_NAMES = {
    "documents": "documents",
    "duplicates": "exact duplicates left out",
    "lines": "lines",
    "tokens": "words of running text",
    "words": "different words",
    "text_bytes": "bytes of text",
}


@dataclass(frozen=True)
class PieceCounts:
    """The number of pieces of the most frequent words of a corpus in both tokenizations of a model."""

    model: str
    n_words: int
    share: float
    """The words' share of the running text."""
    before: Array
    """For k = 0, 1, …: how often words of k pieces occur in the text."""
    after: Array


@dataclass(frozen=True)
class CorpusData:
    """Names, counts and words of a corpus."""

    title: str
    licence: str
    counts: Json
    """The manifest's counts."""
    words: list[str]
    """The most frequent words."""
    word_counts: Array
    """Counts of all words, most frequent first."""


def corpus_section(corpora: list[CorpusData]) -> Section:
    """The section of one or several corpora."""
    blocks: list[Block] = []
    for number, data in enumerate(corpora, 1):
        if len(corpora) > 1:
            blocks.append(Heading(data.title))
        facts = [(name, f"{data.counts[key]:,}") for key, name in _NAMES.items() if data.counts.get(key) is not None]
        blocks += [Facts([("text", data.title), ("licence", data.licence), *facts]), _zipf(data, number)]
        frequent = ", ".join(f"{word} ({count:,} times)" for word, count in islice(_content_words(data), _FREQUENT))
        if frequent:
            blocks.append(Paragraph(f"The most frequent words, without short words and stop words: {frequent}."))
    return Section("corpus", "Corpus", blocks)


def _content_words(data: CorpusData) -> Iterator[tuple[str, int]]:
    """Words that say what a text is about, and their counts, most frequent first."""
    for word, count in zip(data.words, data.word_counts.tolist(), strict=False):
        if len(word) >= _FEWEST_LETTERS and word.isalpha() and word.lower() not in _STOP_WORDS:
            yield word, count


def _zipf(data: CorpusData, number: int) -> Block:
    n = len(data.word_counts)
    ranks = np.unique(np.geomspace(1, n, min(n, _POINTS)).round().astype(int))
    rows = [{"rank": int(rank), "count": int(data.word_counts[rank - 1])} for rank in ranks]
    title = f"How often words occur, by rank ({counted(n, 'word')})"
    x, y = Axis("rank", "rank", ",", log=True), Axis("count", "times", ",", log=True)
    return lines(f"zipf-{number}", title, rows, x, y)


def pieces_section(models: Sequence[PieceCounts]) -> Section:
    """The section of what the added words change in the text: pieces per word before and after, for each model."""
    blocks = [block for number, counts in enumerate(models, 1) for block in _pieces(counts, f"pieces-{number}")]
    return Section("pieces", "Pieces per word", blocks)


def _pieces(counts: PieceCounts, name: str) -> list[Block]:
    before, after = (float((np.arange(len(n)) * n).sum() / max(int(n.sum()), 1)) for n in (counts.before, counts.after))
    rows = []
    for k in range(1, _MOST_FREQUENT + 1):
        label, end = (f"{k}", k + 1) if k < _MOST_FREQUENT else (f"{_MOST_FREQUENT} or more", None)
        for by, n in (("base tokenizer", counts.before), ("with the added words", counts.after)):
            rows.append({"pieces": label, "by": by, "share": float(n[k:end].sum() / max(int(n.sum()), 1))})
    text = (
        f"The base tokenizer of {counts.model} takes {before:.3f} pieces per word of the text, {after:.3f} with the "
        f"added words. This counts the {counts.n_words:,} most frequent words, {as_percent(counts.share)} of the text."
    )
    axes = Axis("share", "share of the words in the text", ".2%"), Axis("pieces", "pieces"), Axis("by", "tokenizer")
    facts = Facts([("pieces per word before", f"{before:.2f}"), ("with the added words", f"{after:.2f}")])
    return [facts, Paragraph(text), bars(name, f"Pieces per word, {counts.model}", rows, *axes)]


@dataclass(frozen=True)
class StageData:
    """One result: its name, the command that made it, if known, and its cost as the manifest has it."""

    name: str
    stage: str
    command: str | None
    cost: Json


def pipeline_section(stages: Sequence[StageData]) -> Section:
    """The results in the order in which they were made, with time and energy."""
    rows = [_cost_row(stage.name, stage.cost) for stage in stages]
    whole = total(stage.cost for stage in stages).as_dict()
    if len(stages) > 1:
        rows.append(_cost_row("all", whole))
    columns = ["result", "seconds", "CPU seconds", "peak memory (MB)", "energy (Wh)", "CO2 (g)", "cents, at most"]
    values = [
        {"stage": stage.name, "seconds": stage.cost["seconds"], "energy": stage.cost["energy_kwh"] * 1000}
        for stage in stages
        if stage.cost
    ]
    blocks: list[Block] = [Table("Results and their cost", columns, rows)]
    if values:
        of = Axis("stage", "result")
        blocks.append(bars("seconds", "Time (seconds)", values, Axis("seconds", "seconds", ",.1f"), of))
        blocks.append(bars("energy", "Energy (Wh)", values, Axis("energy", "Wh", ",.4f"), of))
        blocks.append(Paragraph(f"Energy: {whole['energy_source']}."))
    by_command: dict[str, list[str]] = {}
    for stage in stages:
        by_command.setdefault(stage.command or "not known", []).append(stage.name)
    commands = [[", ".join(names), command] for command, names in by_command.items()]
    blocks.append(Table("What made them", ["results", "command"], commands, ()))
    return Section("pipeline", "Pipeline", blocks)


def cost_section(stages: Sequence[StageData], paper: Sequence[Json]) -> Section:
    """The cost of adapting beside the table of Poerner et al. (2020); ``paper`` is as ``paper_costs`` gives it."""
    adapting = [stage for stage in stages if stage.stage in ("corpus", "w2v", "align", "expand")]
    cost = total(stage.cost for stage in adapting or stages)
    ours = "this adaptation" if adapting else "these results"
    values = [{"model": ours, "co2": cost.co2_kg}]
    values += [{"model": f"{row['paper']} {row['size']}".strip(), "co2": row["co2_kg"]} for row in paper]
    dollars = f"{cost.usd_low:,.4f} to {cost.usd_high:,.4f}"
    rows = [[ours, "", f"{cost.seconds / 3600:,.3f}", f"{cost.co2_kg * 1000:,.3f} g", dollars]]
    for row in paper:
        dollars = f"{row['usd_low']:,.2f} to {row['usd_high']:,.2f}"
        name = f"{row['paper']} {row['size']}".strip()
        rows.append([name, row["hardware"], f"{row['hours']:,.1f}", f"{row['co2_kg']:,.2f} kg", dollars])
    columns = ["model", "hardware", "hours", "CO2", "dollars"]
    table = Table("Beside the paper's table", columns, rows, (2, 3, 4))
    axes = Axis("co2", "CO2 (kg)", ".3g", log=True), Axis("model", "model")
    plot = bars("paper", "CO2 beside the paper's models (kg, logarithmic)", values, *axes)
    text = (
        "The other rows are those of Poerner et al. (2020), with CO2 and dollars by the paper's formula. Theirs are of "
        f"training on large corpora and other hardware. CO2 of {ours}: {cost.co2_source}."
    )
    return Section("cost", "Cost beside the paper's", [plot, table, Paragraph(text)])


def _cost_row(name: str, cost: Json) -> list[str]:
    if not cost:
        return [name, *[""] * 6]
    return [
        name,
        f"{cost['seconds']:,.1f}",
        f"{cost['cpu_seconds']:,.1f}",
        f"{cost['peak_memory_bytes'] / 1e6:,.0f}",
        f"{cost['energy_kwh'] * 1000:,.4f}",
        f"{cost['co2_kg'] * 1000:,.4f}",
        f"{cost['usd_high'] * 100:,.3f}",
    ]


def described(example: Any) -> tuple[str, str]:
    """The text of a labelled example, shortened, and its label."""
    if isinstance(example, Question):
        text = f"{example.question} — {_around_answer(example)}"
        return text, " / ".join(answer.text for answer in example.answers) or "no answer"
    if isinstance(example, Text):
        return _short(" — ".join(filter(None, (example.text, example.second)))), str(example.label)
    return _short(" ".join(example.words)), _entities(example.words, example.tags or ())


def prediction_text(prediction: Json, example: Any) -> str:
    """A line of ``predictions.jsonl`` in words."""
    if "tags" in prediction:
        return _entities(example.words, prediction["tags"])
    if "answer" in prediction:
        return str(prediction["answer"]) or "no answer"
    return str(prediction.get("label", prediction.get("value")))


def _entities(words: Sequence[str], tags: Sequence[str]) -> str:
    texts = [f"{' '.join(words[entity.first : entity.last + 1])} ({entity.type})" for entity in entities(tags)]
    return "; ".join(texts) or "no entity"


def _around_answer(question: Question) -> str:
    begin = max(0, next((answer.start for answer in question.answers if answer.start >= 0), 0) - _LONGEST // 2)
    return ("… " if begin else "") + _short(question.context[begin:])


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


@dataclass(frozen=True)
class MapData:
    """A map from word vectors to rows, or a recipe of rows, and its figures on held-out words."""

    name: str
    method: str
    figures: Json
    """The manifest's ``HeldOut``; empty if it could not be measured."""
    note: str = ""


@dataclass(frozen=True)
class Plane:
    """Sampled words and wordpieces on two axes."""

    points: Rows
    """``label``, ``x``, ``y``, ``what``, ``panel`` and ``named`` (if there is room) of each."""
    share: float
    """Share of the variance that the axes show."""
    table: list[list[str]]
    """Words, their base pieces, and x and y before and after."""


@dataclass(frozen=True)
class RowsData:
    """The new rows of a model beside its old ones."""

    model: str
    base_norms: Array
    new_norms: Array
    """Lengths of sampled rows, float (n,)."""
    n_base: int
    n_new: int
    plane: Plane | None
    near: Sequence[Sequence[str | Sequence[str]]]
    """Sampled words and their neighbours by view."""
    n_candidates: tuple[int, int]
    """Numbers of wordpieces and of added words that were compared."""
    command: str
    """The command that shows the neighbours of other words."""


def space_section(maps: list[MapData], models: list[RowsData]) -> Section:
    """The section of any number of maps and adapted models."""
    blocks: list[Block] = []
    measured = [item for item in maps if item.figures]
    if measured:
        blocks.append(_quality(measured))
        if any(explains_nothing(item.figures) for item in measured):
            blocks.append(
                Paragraph(
                    "R² under 0 means that the mean row would be closer to the held-out rows than these are; the "
                    "cosine and the precision say how well the direction fits."
                )
            )
        blocks += _cosines_by_count(measured)
    blocks += [Paragraph(f"{item.name}: {item.note}") for item in maps if item.note]
    for number, data in enumerate(models, 1):
        if len(models) > 1:
            blocks.append(Heading(data.model))
        blocks += _rows(data, number)
    return Section("space", "Alignment and rows", blocks)


def _quality(maps: list[MapData]) -> Block:
    rows = []
    for item in maps:
        figures = item.figures
        nearest, csls = figures["base_rows"]["cosine"], figures["base_rows"]["csls"]
        shares = (nearest["precision_at_1"], nearest["precision_at_10"], csls["precision_at_10"])
        fit = [
            f"{figures['n_fitted']:,}",
            f"{figures['n_heldout']:,}",
            f"{figures['r2']:.3f}",
            f"{figures['cosine']:.3f}",
        ]
        rows.append([item.name, item.method, *fit, *map(as_percent, shares)])
    columns = ["rows by", "method", "words fitted on", "held out", "R²", "mean cosine", "own row first"]
    columns += ["own row among ten", "by CSLS"]
    return Table("Rows of held-out words, predicted", columns, rows, range(2, 9))


def _cosines_by_count(maps: list[MapData]) -> list[Block]:
    rows = []
    for item in maps:
        bands = item.figures["by_count"]
        for band, after in zip(bands, [*bands[1:], None], strict=True):
            if band["precision_at_10"] is not None:
                label = f"{band['min_count']:,} to {after['min_count'] - 1:,}" if after else f"{band['min_count']:,} up"
                rows.append({"band": label, "share": band["precision_at_10"], "by": item.name, "n": band["n_words"]})
    if not rows:
        return []
    axes = Axis("band", "times in the corpus"), Axis("share", "own row among ten", ".1%"), Axis("by", "rows by")
    plot = lines("precision-by-count", "Held-out words whose own row is among the ten nearest", rows, *axes)
    plot.data.columns.append("words")
    for texts, row in zip(plot.data.rows, rows, strict=True):
        texts.append(f"{row['n']:,}")
    return [plot]


def _rows(data: RowsData, number: int) -> list[Block]:
    blocks: list[Block] = [_norms(data, number)]
    if data.plane is not None:
        blocks += _plane(data.plane, number)
    if data.near:
        pieces, added = data.n_candidates
        blocks.append(Heading("Neighbours"))
        blocks.append(
            Paragraph(
                f"The nearest rows by cosine of the {len(data.near):,} most frequent added words, among {pieces:,} "
                f"wordpieces and the {added:,} most frequent added words. Before, a word is the mean of its pieces."
            )
        )
        columns = ["word", "before: wordpieces", "after: wordpieces", "after: added words"]
        blocks.append(Search(f"near-{number}", columns, data.near, data.command))
    return blocks


def _norms(data: RowsData, number: int) -> Block:
    lengths = np.concatenate([data.base_norms, data.new_norms])
    edges = np.linspace(lengths.min(), lengths.max() + 1e-6, _BINS + 1)
    rows = []
    for label, norms, n in (("wordpieces", data.base_norms, data.n_base), ("added words", data.new_norms, data.n_new)):
        by = label if len(norms) == n else f"{label} ({len(norms):,} of {n:,})"
        counts, _ = np.histogram(norms, edges)
        shares = (counts / max(len(norms), 1)).tolist()
        middles = ((edges[:-1] + edges[1:]) / 2).tolist()
        rows += [{"norm": norm, "share": share, "by": by} for norm, share in zip(middles, shares, strict=True)]
    axes = Axis("norm", "length of the row", ".3f", zero=False), Axis("share", "share", ".1%"), Axis("by", "rows")
    return lines(f"norms-{number}", "Lengths of rows", rows, *axes)


def _plane(plane: Plane, number: int) -> list[Block]:
    columns = ["word", "base pieces", "x before", "y before", "x after", "y after"]
    title = f"Added words among wordpieces ({as_percent(plane.share)} of the variance)"
    plot = scatter(f"map-{number}", title, plane.points, Table("Added words on the map", columns, plane.table, ()))
    text = (
        "Each row has length 1, and both panels have the same axes, the first two principal components of the "
        "wordpieces and of the new rows. Words that are near each other here can be far apart in the other dimensions. "
        "Point at a mark to see its word."
    )
    return [plot, Paragraph(text)]


@dataclass(frozen=True)
class TunedModel:
    """One fine-tuned model."""

    name: str
    scores: Json
    """``scores.json``."""
    history: Sequence[Json]
    """Each epoch of each seed."""
    low: float | None = None
    high: float | None = None
    """Ends of the 95 % interval of the main score on the test set, if it could be computed."""
    difference: tuple[float, float, float] | None = None
    """The difference to the base model, and the ends of its 95 % interval."""
    better: Sequence[Example] = ()
    worse: Sequence[Example] = ()
    """Test examples on which it does better or worse than the base model."""


@dataclass(frozen=True)
class TaskGroup:
    """Models that were scored on the same test set."""

    title: str
    name: str
    """Unique on a page; part of file names."""
    models: Sequence[TunedModel]
    base: str | None = None
    """The model that the others are compared with."""
    notes: Sequence[str] = ()


def tasks_section(groups: Sequence[TaskGroup]) -> Section:
    """The section of all fine-tuned models."""
    blocks: list[Block] = []
    for group in groups:
        blocks.append(Heading(group.title))
        blocks += [*_compared(group), *_curves(group), *_parts(group)]
        for model in group.models:
            blocks += [replace(table, title=f"{model.name}: {table.title}") for table in score_tables(model.scores)]
        blocks += [block for model in group.models for block in _changed(group, model)]
        blocks += map(Paragraph, group.notes)
    return Section("tasks", "Task scores", blocks)


def pretrain_section(models: Sequence[tuple[str, Json, Sequence[Json]]]) -> Section:
    """The section of models after further pre-training: name, ``scores.json`` and history of each."""
    blocks: list[Block] = []
    for number, (name, scores, history) in enumerate(models, 1):
        blocks.append(Heading(name))
        rows = [{"epoch": entry["epoch"], "loss": entry["loss"]} for entry in history if entry.get("loss") is not None]
        if len(rows) > 1:
            axes = Axis("epoch", "epoch", ",", zero=False), Axis("loss", "loss", ".4f", zero=False)
            blocks.append(lines(f"pretrain-{number}", "Training loss", rows, *axes))
        blocks += loss_tables(scores)
    return Section("pretrain", "Further pre-training", blocks)


def _compared(group: TaskGroup) -> list[Block]:
    """The main score of each model, if it has one."""
    rows = []
    for model in group.models:
        value = model.scores.get("mean", {}).get(model.scores.get("main"))
        if value is not None:
            rows.append({"model": model.name, "score": value, "low": model.low, "high": model.high})
    if not rows:
        return []
    scores = group.models[0].scores
    main, n_seeds = score_name(scores["main"]), len(scores["seeds"])
    value = Axis("score", main, ".2%", zero=False)
    ends = Axis("low", "from", ".2%"), Axis("high", "to", ".2%")
    title = f"{main} on the test set" + (f", mean of {n_seeds} seeds" if n_seeds > 1 else "")
    title += ", with 95 % intervals" if rows[0]["low"] is not None else ""
    blocks: list[Block] = [intervals(f"scores-{group.name}", title, rows, Axis("model", "model"), value, ends)]
    differences = [
        [model.name, *map(signed, model.difference)] for model in group.models if model.difference is not None
    ]
    if differences:
        columns = ["model", "difference", "from", "to"]
        blocks.append(Table(f"Points of {main} above {group.base}, 95 % intervals", columns, differences))
    return blocks


def _curves(group: TaskGroup) -> list[Block]:
    """Scores on the development set over epochs, and the loss."""
    blocks: list[Block] = []
    for figure, title in (("dev", "Score on the development set"), ("loss", "Training loss")):
        rows = []
        for model in group.models:
            n_seeds = len(model.scores["seeds"])
            for entry in model.history:
                value = entry.get("loss") if figure == "loss" else _dev_score(model, entry)
                if value is not None:
                    label = model.name if n_seeds == 1 else f"{model.name}, seed {entry['seed']}"
                    rows.append({"epoch": entry["epoch"], "value": value, "by": label})
        if len({row["epoch"] for row in rows}) > 1:
            axis = Axis("value", "loss", ".4f", zero=False) if figure == "loss" else Axis("value", "score", ".2%")
            axes = Axis("epoch", "epoch", ",", zero=False), axis, Axis("by", "model")
            blocks.append(lines(f"{figure}-{group.name}", title, rows, *axes))
    return blocks


def _dev_score(model: TunedModel, entry: Json) -> float | None:
    dev = entry.get("dev") or {}
    value = dev.get("average", dev.get(model.scores.get("main", "")))
    return None if value is None else float(value)


def _parts(group: TaskGroup) -> list[Block]:
    """The scores of each type of entity or class, mean over the seeds."""
    rows = []
    for model in group.models:
        kind, parts = parts_over_seeds([seed["test"] for seed in model.scores["seeds"] if "test" in seed])
        if kind in ("type", "class"):
            rows += [{"part": part, "f1": means["f1"], "by": model.name} for part, means in parts.items()]
    if not rows:
        return []
    axes = Axis("f1", "F1", ".2%"), Axis("part", "part"), Axis("by", "model")
    return [bars(f"parts-{group.name}", "F1 by type or class", rows, *axes)]


def _changed(group: TaskGroup, model: TunedModel) -> list[Block]:
    return [
        Examples(f"{model.name}: {how} than {group.base}", examples)
        for how, examples in (("better", model.better), ("worse", model.worse))
        if examples
    ]


@dataclass(frozen=True)
class AddedData:
    """The added words of a model."""

    model: str
    words: list[str]
    """Most frequent first."""
    pieces: Array
    """Number of base pieces of each word, int (n,)."""
    counts: Array | None
    """Count of each word in the corpus, int (n,); ``None`` if the vectors came without counts."""
    worst: list[tuple[str, str, str]]
    """The most frequent of the words with the most pieces: word, count, base pieces."""


def words_section(models: list[AddedData]) -> Section:
    """The section of one or several adapted models."""
    blocks: list[Block] = []
    for number, data in enumerate(models, 1):
        if len(models) > 1:
            blocks.append(Heading(data.model))
        facts = [("model", data.model), ("added words", f"{len(data.words):,}")]
        facts.append(("base pieces of an added word, mean", f"{data.pieces.mean():.2f}"))
        if data.counts is not None:
            facts.append(("median count", f"{np.median(data.counts):,.0f}"))
        blocks.append(Facts(facts))
        if data.counts is not None:
            blocks.append(_words_by_count(data.counts, number))
        blocks.append(_by_pieces(data, number))
        if data.worst:
            title, columns = "Frequent words that the base tokenizer cuts most", ["word", "times", "base pieces"]
            blocks.append(Table(title, columns, [*map(list, data.worst)], (1,)))
        if data.counts is None:
            blocks.append(Paragraph("The vectors came without counts, so it is not known how often a word occurs."))
    return Section("words", "Added words", blocks)


def _words_by_count(counts: Array, number: int) -> Block:
    rows = []
    for low, high in pairwise((*_BANDS, None)):
        in_band = counts >= low if high is None else (counts >= low) & (counts < high)
        if in_band.any():
            label = f"{low:,} and more" if high is None else f"{low:,} to {high - 1:,}"
            rows.append({"band": label, "n": int(in_band.sum())})
    axes = Axis("n", "added words", ","), Axis("band", "times in the corpus")
    return bars(f"words-by-count-{number}", "Added words by how often they occur", rows, *axes)


def _by_pieces(data: AddedData, number: int) -> Block:
    cut = np.minimum(data.pieces, _MOST_WORDS)
    rows = []
    for k in np.unique(cut).tolist():
        numbers = np.flatnonzero(cut == k)
        rows.append(
            {
                "pieces": ("[UNK]" if k == 1 else str(k)) if k < _MOST_WORDS else f"{_MOST_WORDS} or more",
                "n": len(numbers),
                "examples": ", ".join(data.words[i] for i in numbers[:_EXAMPLES].tolist()),
            }
        )
    axes = Axis("n", "added words", ","), Axis("pieces", "base pieces")
    plot = bars(f"words-by-pieces-{number}", "Added words by how many pieces they were cut into", rows, *axes)
    for row, line in zip(plot.data.rows, rows, strict=True):
        row.append(str(line["examples"]))
    plot.data.columns.append("most frequent")
    return plot
