"""The sections about the stages and their cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from greenadapt.cost import total
from greenadapt.report.page.blocks import Block, Paragraph, Section, Shown
from greenadapt.report.page.charts import Axis, bars
from greenadapt.report.tables import Table
from greenadapt.storage.files import Json


@dataclass(frozen=True)
class StageData:
    """One result: its name, the command that made it, if known, and its cost as the manifest has it."""

    name: str
    stage: str
    command: str | None
    cost: Json


def pipeline_section(stages: Sequence[StageData]) -> Section:
    """The results in the order in which they were made, with time and energy."""
    rows, whole = [_cost_row(one.name, one.cost) for one in stages], total(one.cost for one in stages).as_dict()
    if len(stages) > 1:
        rows.append(_cost_row("all", whole))
    columns = ["result", "seconds", "CPU seconds", "peak memory (MB)", "energy (Wh)", "CO2 (g)", "cents, at most"]
    values = [
        {"stage": one.name, "seconds": one.cost["seconds"], "energy": one.cost["energy_kwh"] * 1000}
        for one in stages
        if one.cost
    ]
    blocks: list[Block] = [Shown(Table("Results and their cost", columns, rows))]
    if values:
        of = Axis("stage", "result")
        blocks.append(bars("seconds", "Time (seconds)", values, Axis("seconds", "seconds", ",.1f"), of))
        blocks.append(bars("energy", "Energy (Wh)", values, Axis("energy", "Wh", ",.4f"), of))
        blocks.append(Paragraph(f"Energy: {whole['energy_source']}."))
    made: dict[str, list[str]] = {}
    for one in stages:
        made.setdefault(one.command or "not known", []).append(one.name)
    commands = [[", ".join(names), command] for command, names in made.items()]
    blocks.append(Shown(Table("What made them", ["results", "command"], commands), ()))
    return Section("pipeline", "Pipeline", blocks)


def cost_section(stages: Sequence[StageData], paper: Sequence[Json]) -> Section:
    """The cost of adapting beside the table of Poerner et al. (2020); ``paper`` is as ``paper_costs`` gives it."""
    adapting = [one for one in stages if one.stage in ("corpus", "w2v", "align", "expand")]
    own = total(one.cost for one in adapting or stages)
    ours = "this adaptation" if adapting else "these results"
    values = [{"model": ours, "co2": own.co2_kg}]
    values += [{"model": f"{row['paper']} {row['size']}".strip(), "co2": row["co2_kg"]} for row in paper]
    dollars = f"{own.usd_low:,.4f} to {own.usd_high:,.4f}"
    rows = [[ours, "", f"{own.seconds / 3600:,.3f}", f"{own.co2_kg * 1000:,.3f} g", dollars]]
    for row in paper:
        dollars = f"{row['usd_low']:,.2f} to {row['usd_high']:,.2f}"
        name = f"{row['paper']} {row['size']}".strip()
        rows.append([name, row["hardware"], f"{row['hours']:,.1f}", f"{row['co2_kg']:,.2f} kg", dollars])
    shown = Table("Beside the paper's table", ["model", "hardware", "hours", "CO2", "dollars"], rows)
    axes = Axis("co2", "CO2 (kg)", ".3g", log=True), Axis("model", "model")
    plot = bars("paper", "CO2 beside the paper's models (kg, logarithmic)", values, *axes)
    text = (
        "The other rows are those of Poerner et al. (2020), with CO2 and dollars by the paper's formula. Theirs are of "
        f"training on large corpora and other hardware. CO2 of {ours}: {own.co2_source}."
    )
    return Section("cost", "Cost beside the paper's", [plot, Shown(shown, (2, 3, 4)), Paragraph(text)])


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
