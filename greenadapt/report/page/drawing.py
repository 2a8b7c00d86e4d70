"""Plots drawn by vl-convert, without a browser or network, and the page as one HTML file that needs nothing else."""

import math
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lxml import etree
from markupsafe import Markup

from greenadapt.errors import MissingError, harmless, one_line
from greenadapt.report.page.blocks import Page, Plot, Section
from greenadapt.report.page.charts import SCHEMA
from greenadapt.storage.files import Json
from greenadapt.storage.outputs import open_file

if TYPE_CHECKING:
    from jinja2 import Template


# The colours of Okabe and Ito (2008), which people who are blind to colours can tell apart; dark enough on white.
_PRINT = {
    "ink": "#222222",
    "line": "#767676",
    "grid": "#dddddd",
    "series": ["#0072b2", "#d55e00", "#008060", "#aa4488"],
}
# In the page, variables of its style sheet, which has both colour schemes.
_SCREEN = {
    "ink": "var(--ink)",
    "line": "var(--line)",
    "grid": "var(--grid)",
    "series": [f"var(--series-{i})" for i in range(1, 5)],
}
_FONT = "Helvetica, Arial, sans-serif"  # as in the style sheet
_LONG_NUMBER = re.compile(r"(\d+\.\d)\d+")
_LONGEST = 200  # characters of a text
_SCALE = 3  # of a PNG for papers


def drawn(plot: Plot) -> str:
    """A plot as an SVG element for an HTML page, with the colours of the page's style sheet.

    A mark has its label in ``data-tip``; to screen readers the whole is one picture, since the page has its table.
    """
    root = etree.fromstring(_library().vegalite_to_svg(_with_theme(plot.spec, _SCREEN)).encode())
    for element in root.iter():
        label, is_mark = element.get("aria-label"), element.get("role") == "graphics-symbol"
        for name in ("role", "aria-label", "aria-roledescription", "aria-hidden", "font-family"):
            element.attrib.pop(name, None)
        if element.get("opacity") == "1":
            del element.attrib["opacity"]
        if label and is_mark and "axis" not in element.get("class", "") and "legend" not in element.get("class", ""):
            element.set("data-tip", label)
        if "id" in element.attrib:  # each picture numbers its own from 0
            element.set("id", f"{plot.name}-{element.get('id')}")
        if "clip-path" in element.attrib:
            element.set("clip-path", element.get("clip-path", "").replace("#", f"#{plot.name}-"))
        for name in ("d", "transform"):
            if name in element.attrib:
                element.set(name, _LONG_NUMBER.sub(r"\1", element.get(name, "")))
    root.set("role", "img")
    root.set("aria-label", f"{one_line(plot.title)}; the table has what it shows")
    return str(etree.tostring(root, encoding="unicode"))


def png_of(plot: Plot, scale: int) -> bytes:
    """A plot as PNG, in colours for paper, with ``scale`` pixels per unit: a plot is about 500 units wide."""
    picture: bytes = _library().vegalite_to_png(_with_theme(plot.spec, _PRINT), scale=scale)
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
                file.write(_library().vegalite_to_svg(_with_theme(plot.spec, _PRINT)))
    return written


def require_library() -> None:
    """Raise ``MissingError`` if vl-convert is not installed."""
    if find_spec("vl_convert") is None:
        raise MissingError("report needs vl_convert, which is not installed", 'pip install "greenadapt[report]"')


class Drawing:
    """Draws plots in a thread of its own, as ``drawn`` does, while others are still computed."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._pictures: dict[str, Future[str]] = {}

    def __enter__(self) -> "Drawing":
        mark = {"$schema": SCHEMA, "data": {"values": [{}]}, "mark": "point"}
        self._thread.submit(_library().vegalite_to_svg, mark)  # the engine takes half a second to start
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


def _library() -> Any:
    import vl_convert

    return vl_convert


class _Labels:
    """Texts as they can be drawn: characters that end the library's process (it aborts) are replaced, and the middle of
    long ones is left out. Texts that differ stay different.
    """

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, value: Any) -> Any:
        """A specification with such texts, and without numbers that JSON does not have."""
        if isinstance(value, dict):
            return {name: self.of(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(one) for one in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return self._label(value) if isinstance(value, str) else value

    def _label(self, text: str) -> str:
        if text not in self._shown:
            line = one_line(text)
            label = line = line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]}…{line[-_LONGEST // 2 :]}"
            n_alike = 1
            while label in self._taken:
                n_alike += 1
                label = f"{line} ({n_alike})"
            self._taken.add(label)
            self._shown[text] = label
        return self._shown[text]


def _with_theme(spec: Json, colours: Json) -> Json:
    spec = _Labels().of(spec)
    text = {"labelColor": colours["ink"], "titleColor": colours["ink"], "labelFontSize": 12, "titleFontSize": 12}
    return spec | {
        "background": None if colours is _SCREEN else "white",
        "padding": {"left": 16, "top": 5, "right": 12, "bottom": 5},  # text may be wider in a browser
        "config": {
            "font": _FONT,
            "view": {"stroke": colours["grid"]},
            "axis": {**text, "titleFontWeight": "normal", "gridColor": colours["grid"], "domainColor": colours["line"]}
            | {"tickColor": colours["line"]},
            "legend": text,
            "header": text,
            "mark": {"color": colours["series"][0]},
            "rule": {"color": colours["series"][0]},
            "text": {"color": colours["ink"]},
            "range": {"category": colours["series"]},
        },
    }


def html(page: Page, version: str, picture: Callable[[Plot], str] = drawn) -> str:
    """The page; ``version`` is greenadapt's, and ``picture`` gives a plot as an SVG element.

    Every text is escaped, and the browser is told to run only the page's own script and to load nothing.
    """
    style, script = _asset("page.css"), _asset("page.js")
    written = _template().render(
        page=page,
        version=version,
        style=Markup(style),
        script=Markup(script),
        policy="; ".join(
            [
                "default-src 'none'",
                f"style-src '{_hash(style)}'",
                f"script-src '{_hash(script)}'",
                "base-uri 'none'",
                "form-action 'none'",
            ]
        ),
        picture=lambda plot: Markup(picture(plot)),
    )
    return harmless(written)  # texts must not turn the direction of the page


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return files("greenadapt.report.page").joinpath(name).read_text("utf-8")


def _shown(value: Any) -> Any:
    """The texts in lists and dictionaries as they are shown: JSON escapes what ``harmless`` looks for."""
    if isinstance(value, dict):
        return {name: _shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return harmless(value) if isinstance(value, str) else value


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["shown"] = _shown
    return environment.from_string(_asset("page.html.j2"))
