"""The sections about fine-tuned models: scores, comparisons, learning curves, parts, and examples that changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from greenadapt.report.page.blocks import Block, Example, Examples, Heading, Paragraph, Section, Shown
from greenadapt.report.page.charts import Axis, bars, intervals, lines
from greenadapt.report.tables import Table, loss_tables, parts_over_seeds, score_name, score_tables, signed
from greenadapt.storage.files import Json


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
    """To the base model, and the ends of its 95 % interval."""
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
    """The one that the others are compared with."""
    notes: Sequence[str] = field(default=())


def tasks_section(groups: Sequence[TaskGroup]) -> Section:
    """The section of all fine-tuned models."""
    blocks: list[Block] = []
    for group in groups:
        blocks.append(Heading(group.title))
        blocks += [*_compared(group), *_curves(group), *_parts(group)]
        for model in group.models:
            blocks += [
                Shown(Table(f"{model.name}: {table.title}", table.columns, table.rows))
                for table in score_tables(model.scores)
            ]
        blocks += [block for model in group.models for block in _changed(group, model)]
        blocks += map(Paragraph, group.notes)
    return Section("tasks", "Task scores", blocks)


def pretrain_section(models: Sequence[tuple[str, Json, Sequence[Json]]]) -> Section:
    """The section of models whose pre-training went on: name, ``scores.json`` and history of each."""
    blocks: list[Block] = []
    for number, (name, scores, history) in enumerate(models, 1):
        blocks.append(Heading(name))
        rows = [{"epoch": one["epoch"], "loss": one["loss"]} for one in history if one.get("loss") is not None]
        if len(rows) > 1:
            axes = Axis("epoch", "epoch", ",", zero=False), Axis("loss", "loss", ".4f", zero=False)
            blocks.append(lines(f"pretrain-{number}", "Training loss", rows, *axes))
        blocks += [Shown(table, range(2, 7)) for table in loss_tables(scores)]
    return Section("pretrain", "Further pre-training", blocks)


def _compared(group: TaskGroup) -> list[Block]:
    """The main score of each model, if it has one."""
    rows = []
    for model in group.models:
        main = model.scores.get("main")
        value = model.scores.get("mean", {}).get(main)
        if value is not None:
            rows.append({"model": model.name, "score": value, "low": model.low, "high": model.high})
    if not rows:
        return []
    main, n_seeds = score_name(group.models[0].scores["main"]), len(group.models[0].scores["seeds"])
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
        blocks.append(Shown(Table(f"Points of {main} above {group.base}, 95 % intervals", columns, differences)))
    return blocks


def _curves(group: TaskGroup) -> list[Block]:
    """Scores on the development set over epochs, and the loss."""
    blocks: list[Block] = []
    for what, title in (("dev", "Score on the development set"), ("loss", "Training loss")):
        rows = []
        for model in group.models:
            n_seeds = len(model.scores["seeds"])
            for entry in model.history:
                value = entry.get("loss") if what == "loss" else _dev_score(model, entry)
                if value is not None:
                    label = model.name if n_seeds == 1 else f"{model.name}, seed {entry['seed']}"
                    rows.append({"epoch": entry["epoch"], "value": value, "by": label})
        if len({row["epoch"] for row in rows}) > 1:
            axis = Axis("value", "loss", ".4f", zero=False) if what == "loss" else Axis("value", "score", ".2%")
            axes = Axis("epoch", "epoch", ",", zero=False), axis, Axis("by", "model")
            blocks.append(lines(f"{what}-{group.name}", title, rows, *axes))
    return blocks


def _dev_score(model: TunedModel, entry: Json) -> float | None:
    dev = entry.get("dev") or {}
    value = dev.get("average", dev.get(model.scores.get("main", "")))
    return None if value is None else float(value)


def _parts(group: TaskGroup) -> list[Block]:
    """The scores of each type of entity or class, mean over the seeds."""
    rows = []
    for model in group.models:
        what, parts = parts_over_seeds([seed["test"] for seed in model.scores["seeds"] if "test" in seed])
        if what in ("type", "class"):
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
