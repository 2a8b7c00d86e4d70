"""The page as one HTML file that needs nothing else."""

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from greenadapt.errors import harmless
from greenadapt.report.page.blocks import Page, Plot
from greenadapt.report.page.drawing import drawn

if TYPE_CHECKING:
    from jinja2 import Template


def html(page: Page, version: str, picture: Callable[[Plot], str] = drawn) -> str:
    """The page; ``version`` is greenadapt's, and ``picture`` gives a plot as an SVG element.

    Every text is escaped, and the browser is told to run only the page's own script and to load nothing.
    """
    from markupsafe import Markup

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
