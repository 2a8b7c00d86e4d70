"""Plots as Vega-Lite specifications, each with its table, from the same rows; drawn by vl-convert, without a browser.

The specifications are dictionaries: altair is no shorter, and takes 0.5 s to import and 0.1 s a plot.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.errors import as_percent, one_line
from greenadapt.report.page.blocks import Plot, Section
from greenadapt.report.tables import Table
from greenadapt.storage.files import Json
from greenadapt.storage.outputs import open_file

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


# The colours of Okabe and Ito (2008), which colour-blind readers can tell apart; dark enough on white.
_PRINT = {
    "background": "white",
    "ink": "#222222",
    "line": "#767676",
    "grid": "#dddddd",
    "series": ["#0072b2", "#d55e00", "#008060", "#aa4488"],
}
# Variables of the page's style sheet, which has both colour schemes.
_SCREEN = {
    "background": None,
    "ink": "var(--ink)",
    "line": "var(--line)",
    "grid": "var(--grid)",
    "series": [f"var(--series-{i})" for i in range(1, 5)],
}
_LONGEST = 200  # characters of a text
_SCALE = 3  # of a PNG for papers


def drawn(plot: Plot) -> str:
    """A plot as an SVG element for the page, with the colours of its style sheet; each mark is labelled."""
    return _svg(_with_theme(plot.spec, _SCREEN))


def png_of(plot: Plot, scale: int) -> bytes:
    """A plot as PNG, in colours for paper, with ``scale`` pixels per unit: a plot is about 500 units wide."""
    import vl_convert

    return vl_convert.vegalite_to_png(_with_theme(plot.spec, _PRINT), scale=scale)


def _svg(spec: Json) -> str:
    import vl_convert

    return vl_convert.vegalite_to_svg(spec)


def write_plots(plots: Sequence[Plot], png: Path | None, svg: Path | None) -> list[Path]:
    """Write each plot into the folders ``png`` and ``svg``, in colours for paper; returns the files."""
    written = []
    for plot in plots:
        if png is not None:
            written.append(png / f"{plot.name}.png")
            with open_file(written[-1], "wb") as file:
                file.write(png_of(plot, _SCALE))
        if svg is not None:
            written.append(svg / f"{plot.name}.svg")
            with open_file(written[-1], "w") as file:
                file.write(_svg(_with_theme(plot.spec, _PRINT)))
    return written


class Drawing:
    """Draws plots in a thread of its own, as ``drawn`` does, while others are still computed."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._pictures: dict[str, Future[str]] = {}

    def __enter__(self) -> "Drawing":
        self._thread.submit(_svg, {"$schema": SCHEMA, "data": {"values": [{}]}, "mark": "point"})  # starts the engine
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def begin(self, section: Section) -> Section:
        """Begin with the plots of ``section``, which is returned."""
        self._pictures |= {plot.name: self._thread.submit(drawn, plot) for plot in section.plots()}
        return section

    def picture(self, plot: Plot) -> str:
        """A plot of a section that was begun."""
        return self._pictures[plot.name].result()


class _Labels:
    """Texts that can be drawn: without characters that make the library abort, and without the middle of long texts.

    Different texts have different labels.
    """

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, value: Any) -> Any:
        """A specification with such texts, and without numbers that JSON does not have."""
        if isinstance(value, dict):
            return {name: self.of(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return self._label(value) if isinstance(value, str) else value

    def _label(self, text: str) -> str:
        if text not in self._labels:
            line = one_line(text)
            label = line = line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]}…{line[-_LONGEST // 2 :]}"
            n_alike = 1
            while label in self._taken:
                n_alike += 1
                label = f"{line} ({n_alike})"
            self._taken.add(label)
            self._labels[text] = label
        return self._labels[text]


def _with_theme(spec: Json, colours: Json) -> Json:
    """``spec`` with colours and fonts; only marks have labels, since the page's table has the axes and legends."""
    text = {"labelColor": colours["ink"], "titleColor": colours["ink"], "labelFontSize": 12, "titleFontSize": 12}
    text["aria"] = False
    lines = {"gridColor": colours["grid"], "domainColor": colours["line"], "tickColor": colours["line"]}
    labelled: Json = _Labels().of(spec)
    return labelled | {
        "background": colours["background"],
        "padding": {"left": 16, "top": 5, "right": 12, "bottom": 5},  # text may be wider in a browser
        "config": {
            "font": "Helvetica, Arial, sans-serif",
            "view": {"stroke": colours["grid"]},
            "axis": text | lines | {"titleFontWeight": "normal"},
            "legend": text,
            "header": text,
            "mark": {"color": colours["series"][0]},
            "rule": {"color": colours["series"][0]},
            "text": {"color": colours["ink"]},
            "range": {"category": colours["series"]},
        },
    }
