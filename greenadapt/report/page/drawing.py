"""Plots drawn by vl-convert, without a browser or network."""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from greenadapt.errors import one_line
from greenadapt.report.page.blocks import Plot, Section
from greenadapt.report.page.charts import SCHEMA
from greenadapt.storage.files import Json
from greenadapt.storage.outputs import open_file

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

    picture: bytes = vl_convert.vegalite_to_png(_with_theme(plot.spec, _PRINT), scale=scale)
    return picture


def _svg(spec: Json) -> str:
    import vl_convert

    picture: str = vl_convert.vegalite_to_svg(spec)
    return picture


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
