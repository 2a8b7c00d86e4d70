"""The page of ``report``: one template with tables and four Vega-Lite charts, which vl-convert draws as SVG."""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from greenadapt.cost import total
from greenadapt.errors import as_percent, harmless, one_line
from greenadapt.report.tables import Table, score_name, with_sign
from greenadapt.store.files import Json

Rows = Sequence[Mapping[str, Any]]
_WIDTH, _PANEL = 400, 380
_MAX_LABEL = 100  # characters
# Variables of the page's style sheet, which has both colour schemes.
_SERIES = [f"var(--series-{i})" for i in range(1, 5)]
_TEXT = {"labelColor": "var(--ink)", "titleColor": "var(--ink)", "labelFontSize": 12, "titleFontSize": 12}
_LINES = {"gridColor": "var(--grid)", "domainColor": "var(--line)", "tickColor": "var(--line)"}
_CONFIG: Json = {
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": "var(--grid)"},
    "axis": _TEXT | _LINES | {"titleFontWeight": "normal"},
    "legend": _TEXT,
    "header": _TEXT,
    "mark": {"color": _SERIES[0]},
    "text": {"color": "var(--ink)"},
    "range": {"category": _SERIES},
}


@dataclass(frozen=True)
class Chart:
    """A title and a Vega-Lite specification."""

    title: str
    spec: Json


@dataclass(frozen=True)
class Section:
    """A part of the page; ``name`` is its anchor, and a block that is text is a paragraph."""

    name: str
    title: str
    blocks: Sequence[str | Table | Chart]


@dataclass(frozen=True)
class TunedModel:
    """One fine-tuned model."""

    name: str
    scores: Json
    """``scores.json``."""
    low: float | None = None
    high: float | None = None
    """Ends of the 95 % interval of the main score on the test set, if it could be computed."""
    difference: tuple[float, float, float] | None = None
    """The difference to the base model, and the ends of its 95 % interval."""


@dataclass(frozen=True)
class TaskGroup:
    """Models that were scored on the same test set."""

    title: str
    models: Sequence[TunedModel]
    base: str | None = None
    """The model that the others are compared with."""
    notes: Sequence[str] = ()


def compare_models(group: TaskGroup) -> list[str | Table | Chart]:
    """The main score of each model with its interval, as a chart and a table, and the group's notes."""
    rows, cells = [], []
    for model in group.models:
        value = model.scores.get("mean", {}).get(model.scores.get("main"))
        if value is None:
            continue
        rows.append({"model": model.name, "score": value, "low": model.low, "high": model.high})
        difference = [with_sign(end) for end in model.difference or (None, None, None)]
        ends = ["" if end is None else as_percent(end, 2) for end in (value, model.low, model.high)]
        cells.append([model.name, *ends, *difference])
    if not rows:
        return [group.title, *group.notes]
    scores = group.models[0].scores
    title = f"{group.title}: {score_name(scores['main'])} on the test set"
    x: Json = {"type": "quantitative", "title": None, "scale": {"zero": False}, "axis": {"format": "~%"}}
    layer = [
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
            "transform": [{"filter": "isValid(datum.low)"}],
        },
        {"mark": {"type": "point", "filled": True, "size": 80}, "encoding": {"x": {**x, "field": "score"}}},
    ]
    spec = _spec(rows, layer=layer, encoding={"y": _names("model")}, height=max(60, 34 * len(rows)))
    compared = [f"points above {group.base}", "from", "to"] if group.base else ["", "", ""]
    columns = ["model", score_name(scores["main"]), "from", "to", *compared]
    return [Chart(title, spec), Table(f"{title}, with 95 % intervals", columns, cells), *group.notes]


def chart_by_count(rows: Rows) -> Chart:
    """How many rows of held-out words are found again, by how often a word occurs: ``band``, ``share``, ``by``."""
    encoding = {
        "y": _names("band"),
        "x": {"field": "share", "type": "quantitative", "title": None, "axis": {"format": "~%"}},
        "yOffset": {"field": "by", "sort": None},
        "color": _series("by"),
    }
    n_bars = len({(row["band"], row["by"]) for row in rows})
    spec = _spec(rows, mark="bar", encoding=encoding, height=max(60, 24 * n_bars))
    return Chart("Held-out words with their own row among ten, by times in the corpus", spec)


def chart_map(points: Rows, share: float) -> Chart:
    """Words on two axes, before and after: ``label``, ``x``, ``y``, ``what``, ``panel`` and ``named``."""
    axis: Json = {"type": "quantitative", "axis": None}
    encoding = {"x": {"field": "x", **axis}, "y": {"field": "y", **axis}}
    shape = {"field": "what", "scale": {"range": ["circle", "triangle-up"]}, "legend": None, "sort": None}
    layer = [
        {
            "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.75},
            "encoding": {"shape": shape, "color": _series("what"), "description": {"field": "label"}},
        },
        {
            "transform": [{"filter": "datum.named"}],
            "mark": {"type": "text", "dy": -8, "fontSize": 12},
            "encoding": {"text": {"field": "label"}},
        },
    ]
    inner = {"width": _PANEL, "height": _PANEL, "encoding": encoding, "layer": layer}
    column = {"field": "panel", "title": None, "sort": None}
    spec = {"data": {"values": list(points)}, "facet": {"column": column}, "spec": inner}
    return Chart(f"Added words among wordpieces ({as_percent(share)} of the variance)", spec)


@dataclass(frozen=True)
class StageData:
    """One result: its name, the command that made it, if known, and its cost as the manifest has it."""

    name: str
    command: str | None
    cost: Json


def cost_section(stages: Sequence[StageData]) -> Section:
    """Time and energy of each result, and the commands."""
    whole = total(stage.cost for stage in stages)
    rows = [_cost_row(stage.name, stage.cost) for stage in stages if stage.cost]
    rows.append(_cost_row("all", asdict(whole)))
    columns = ["result", "seconds", "CPU seconds", "peak memory (MB)", "energy (Wh)", "CO2 (g)", "cents, at most"]
    values = [{"result": stage.name, "seconds": stage.cost["seconds"]} for stage in stages if stage.cost]
    encoding = {"y": _names("result"), "x": {"field": "seconds", "type": "quantitative", "title": None}}
    spec = _spec(values, mark="bar", encoding=encoding, height=max(60, 26 * len(values)))
    commands = [[stage.name, stage.command or "not known"] for stage in stages]
    return Section(
        "cost",
        "Cost",
        [
            Chart("Time (seconds)", spec),
            Table("Results and their cost", columns, rows),
            Table("What made them", ["result", "command"], commands, ()),
            f"Energy: {whole.energy_source}. CO2: {whole.co2_source}.",
        ],
    )


def _cost_row(name: str, cost: Json) -> list[str]:
    return [
        name,
        f"{cost['seconds']:,.1f}",
        f"{cost['cpu_seconds']:,.1f}",
        f"{cost['peak_memory_bytes'] / 1e6:,.0f}",
        f"{cost['energy_kwh'] * 1000:,.4f}",
        f"{cost['co2_kg'] * 1000:,.4f}",
        f"{cost['usd_high'] * 100:,.3f}",
    ]


def _spec(rows: Rows, **fields: Any) -> Json:
    return {"data": {"values": list(rows)}, "width": _WIDTH, **fields}


def _names(field: str) -> Json:
    return {"field": field, "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 170}}


def _series(field: str) -> Json:
    legend = {"orient": "top", "columns": 2, "title": None, "labelLimit": 260}
    return {"field": field, "type": "nominal", "sort": None, "legend": legend}


def draw(spec: Json) -> str:
    """The chart as an SVG element with the colours of the style sheet."""
    import vl_convert

    schema = "https://vega.github.io/schema/vega-lite/v6.json"
    return vl_convert.vegalite_to_svg({"$schema": schema, "background": None, "config": _CONFIG, **_sanitize(spec)})


def _sanitize(value: Any) -> Any:
    """A specification whose texts are short and on one line, without characters that end vl-convert."""
    if isinstance(value, Mapping):
        return {name: _sanitize(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sanitize(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return one_line(value)[:_MAX_LABEL] if isinstance(value, str) else value


def html(title: str, sections: Sequence[Section], version: str) -> str:
    """The page as a single file; its policy makes browsers run no script, and load nothing. Every text is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("greenadapt", "report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["hash"] = lambda text: f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
    css = Markup(files("greenadapt.report").joinpath("page.css").read_text("utf-8"))
    names = {"title": title, "sections": sections, "version": version, "css": css}
    page = environment.get_template("page.html.j2").render(draw=lambda spec: Markup(draw(spec)), **names)
    return harmless(page)  # texts must not turn the direction of the page
