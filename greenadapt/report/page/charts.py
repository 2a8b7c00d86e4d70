"""Plots as Vega-Lite specifications, each with its table, from the same rows.

They are dictionaries: altair is no shorter, and takes 0.5 s to import and 0.1 s a plot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from greenadapt.errors import as_percent
from greenadapt.report.page.blocks import Plot
from greenadapt.report.tables import Table
from greenadapt.storage.files import Json

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_WIDTH, _HEIGHT = 400, 250
_FEW = 50  # rows whose marks are told apart
_PANEL = 390, 360  # width and height
_LETTER, _LINE, _ABOVE = 6.5, 14, 7  # of a label, about: width of a letter, height, and how far it is above its point
_MOST_NAMED = 8
_NAMES: Json = {"labelLimit": 170, "title": None}
_POINT = {"type": "point", "filled": True, "size": 80, "opacity": 1}


@dataclass(frozen=True)
class Axis:
    """A column of the rows, on an axis and in the table."""

    field: str
    title: str
    format: str = ""
    """Format of numbers for ``format``; empty for names."""
    log: bool = False
    zero: bool = True

    def text(self, value: Any) -> str:
        """A value as the table and the label of a mark have it."""
        if value is not None and self.format.endswith("%"):
            return as_percent(value, int(self.format[1:-1]))
        return "" if value is None else format(value, self.format)

    @property
    def _tick_format(self) -> str:
        """d3's format for the numbers along the axis."""
        if self.format.endswith("%"):
            return "~%"
        return "~s" if self.log and self.format == "," else ",.12~g"

    def encoding(self, **options: Any) -> Json:
        """Its channel."""
        channel = {"field": self.field, "type": "quantitative" if self.format else "nominal", "title": self.title}
        if not self.format:
            return {**channel, "sort": None, "axis": {"labelAngle": 0}, **options}
        axis = {"format": self._tick_format, "tickCount": 5}
        if self.format == "," and not self.log:
            axis["tickMinStep"] = 1
        return {**channel, "scale": {"type": "log"} if self.log else {"zero": self.zero}, "axis": axis, **options}


Rows = Sequence[Mapping[str, Any]]


def bars(name: str, title: str, rows: Rows, value: Axis, of: Axis, by: Axis | None = None) -> Plot:
    """Horizontal bars of ``value``, one for each ``of``, side by side for each ``by``.

    On a logarithmic axis, where a bar could not begin, they are points.
    """
    encoding: Json = {"y": of.encoding(axis=_NAMES), "x": value.encoding()}
    if by is not None:
        encoding |= {"yOffset": {"field": by.field, "sort": None}, "color": _series(by)}
    n_bars = len({row[of.field] for row in rows})
    n_series = len({row[by.field] for row in rows}) if by else 1
    mark = _POINT if value.log else {"type": "bar"}
    spec = {"mark": mark, "encoding": encoding, "height": max(60, n_bars * (14 * n_series + 12))}
    return _plot(name, title, rows, [of, *([by] if by else []), value], spec)


def lines(name: str, title: str, rows: Rows, x: Axis, y: Axis, by: Axis | None = None) -> Plot:
    """Lines of ``y`` over ``x``, one for each ``by``; with a mark at each row if there are few."""
    points = len(rows) < _FEW
    encoding: Json = {"x": x.encoding(), "y": y.encoding()}
    if by is not None:
        encoding |= {"color": _series(by), "strokeDash": {"field": by.field, "legend": None, "sort": None}}
        if points:
            encoding["shape"] = {"field": by.field, "sort": None, "legend": None}
    mark = {"type": "line", "point": {"filled": True, "size": 45} if points else False}
    return _plot(name, title, rows, [*([by] if by else []), x, y], {"mark": mark, "encoding": encoding})


def intervals(name: str, title: str, rows: Rows, of: Axis, value: Axis, ends: tuple[Axis, Axis]) -> Plot:
    """A point for each ``of``, with the interval between ``ends`` if it is known."""
    low, high = ends
    x = value.encoding()
    line = {"x": {**x, "field": low.field}, "x2": {"field": high.field}}
    is_known = {"filter": f"isValid(datum.{low.field})"}
    layer = [
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": line, "transform": [is_known]},
        {"mark": _POINT, "encoding": {"x": x}},
    ]
    spec = {"layer": layer, "encoding": {"y": of.encoding(axis=_NAMES)}, "height": max(60, 34 * len(rows))}
    return _plot(name, title, rows, [of, value, low, high], spec)


def scatter(name: str, title: str, rows: Rows, table: Table) -> Plot:
    """Points at ``x`` and ``y``, with colours by ``what``, in one plot for each ``panel``.

    Of the rows with ``named``, the first whose ``label`` has room in every panel have it written.
    """
    panel, by, label = Axis("panel", ""), Axis("what", ""), Axis("label", "")
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    ends = {field: _ends([row[field] for row in rows]) for field in "xy"}
    written = _with_room([row for row in rows if row["named"]], ends)
    rows = [
        # By its number, since Vega would make a sorted list of names into code.
        {**row, "order": panels.index(row["panel"]), "named": row["named"] and row["label"] in written}
        for row in rows
    ]
    axis = {"labels": False, "ticks": False, "title": None}
    x, y = (
        {"field": field, "type": "quantitative", "axis": axis, "scale": {"domain": ends[field], "nice": False}}
        for field in "xy"
    )
    shape = {"field": by.field, "sort": None, "legend": None, "scale": {"range": ["circle", "triangle-up"]}}
    points = {
        "mark": {"type": "point", "filled": True, "size": 28, "opacity": 0.75},
        "encoding": {"shape": shape, "color": _series(by), "description": {"field": "tip"}},
    }
    names = {
        "transform": [{"filter": "datum.named"}],
        "mark": {"type": "text", "dy": -_ABOVE - 1, "fontSize": 12},
        "encoding": {"text": {"field": label.field}},
    }
    inner = {"width": _PANEL[0], "height": _PANEL[1], "encoding": {"x": x, "y": y}, "layer": [points, names]}
    order = {"field": "order", "op": "min"}
    column = {"field": panel.field, "sort": order, "title": None, "header": {"labelFontSize": 13}}
    spec = {"facet": {"column": column}, "spec": inner}
    return Plot(name, title, _with_tips(spec, rows, [label, by, panel]), table, is_wide=True)


def _ends(values: Sequence[float]) -> list[float]:
    """The ends of an axis, a little outside of its ``values``."""
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or 1.0
    return [low - margin, high + margin]


def _with_room(rows: Rows, ends: Mapping[str, list[float]]) -> list[str]:
    """The first labels of ``rows`` that touch neither each other nor an edge in any panel."""
    boxes: dict[str, list[tuple[Any, float, float, float]]] = {}  # panel; middle and base of the text, half its width
    for row in rows:
        x, y = (
            (row[field] - low) / (high - low) * size
            for (field, (low, high)), size in zip(ends.items(), _PANEL, strict=True)
        )
        boxes.setdefault(row["label"], []).append((row["panel"], x, y + _ABOVE, len(row["label"]) * _LETTER / 2))
    chosen: list[str] = []
    taken: list[tuple[Any, float, float, float]] = []
    for label, label_boxes in boxes.items():
        is_inside = all(half <= x <= _PANEL[0] - half and y + _LINE <= _PANEL[1] for _, x, y, half in label_boxes)
        touches = any(
            panel == taken_panel and abs(x - taken_x) < half + width and abs(y - base) < _LINE
            for panel, x, y, half in label_boxes
            for taken_panel, taken_x, base, width in taken
        )
        if is_inside and not touches and len(chosen) < _MOST_NAMED:
            chosen.append(label)
            taken += label_boxes
    return chosen


def _series(by: Axis) -> Json:
    legend = {"orient": "top", "columns": 2, "columnPadding": 24, "title": None, "labelLimit": 260}
    legend |= {"symbolOpacity": 1, "symbolDash": [1, 0]}
    return {"field": by.field, "type": "nominal", "sort": None, "legend": legend}


def _plot(name: str, title: str, rows: Rows, columns: Sequence[Axis], spec: Json) -> Plot:
    numbers = [i for i, axis in enumerate(columns) if axis.format]
    table = Table(title, [axis.title for axis in columns], [_texts(row, columns) for row in rows], numbers)
    spec["encoding"]["description"] = {"field": "tip"}
    spec = {"width": _WIDTH, "height": _HEIGHT} | spec
    return Plot(name, title, _with_tips(spec, rows, columns), table)


def _texts(row: Mapping[str, Any], columns: Sequence[Axis]) -> list[str]:
    return [axis.text(row.get(axis.field)) for axis in columns]


def _with_tips(spec: Json, rows: Rows, columns: Sequence[Axis]) -> Json:
    """``spec`` with the rows as data, each with the label of its mark."""
    values = []
    for row in rows:
        pairs = zip(columns, _texts(row, columns), strict=True)
        tip = ", ".join(f"{axis.title} {text}" if axis.format else text for axis, text in pairs if text)
        values.append({**row, "tip": tip})
    return {"$schema": SCHEMA, "data": {"values": values}, **spec}
