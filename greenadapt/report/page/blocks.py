"""The blocks of a page: paragraphs, tables, plots, examples and a search; and the page as HTML."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from greenadapt.errors import harmless
from greenadapt.report.tables import Table
from greenadapt.storage.files import Json

_FEW = 12  # marks of a plot that are described in words


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Plot:
    """A plot (Vega-Lite) and the table of its data."""

    name: str
    """Name of its file, unique on a page."""
    title: str
    spec: Json
    data: Table
    is_wide: bool = False

    @property
    def in_words(self) -> str:
        """The title, and the values of the marks if they are few."""
        marks = [value["tip"] for value in self.spec["data"]["values"]]
        return f"{self.title}: {'; '.join(marks)}" if len(marks) <= _FEW else self.title


@dataclass(frozen=True)
class Example:
    """A labelled text with its label and the prediction of each model."""

    text: str
    lines: Sequence[tuple[str, str]]
    """The name of a model or of the label, and its value."""


@dataclass(frozen=True)
class Examples:
    """Some examples under a title."""

    title: str
    examples: Sequence[Example]


@dataclass(frozen=True)
class Search:
    """Neighbours of the word that a reader types."""

    name: str
    """Unique on a page."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Sequence[str]]]
    """Each word and, by column, its neighbours."""
    elsewhere: str
    """Advice for other words."""


Block = Heading | Paragraph | Facts | Table | Plot | Examples | Search


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own; ``name`` is its anchor."""

    name: str
    title: str
    blocks: Sequence[Block]

    def plots(self) -> list[Plot]:
        """Its plots in order."""
        return [block for block in self.blocks if isinstance(block, Plot)]


@dataclass(frozen=True)
class Missing:
    """A section that a page lacks, and the commands that would make it."""

    section: str
    commands: Sequence[str]


@dataclass(frozen=True)
class Page:
    """Everything on a page."""

    title: str
    about: str
    sections: Sequence[Section]
    missing: Sequence[Missing] = ()

    def plots(self) -> list[Plot]:
        """The plots of all sections, in order."""
        return [plot for section in self.sections for plot in section.plots()]


def html(page: Page, version: str, picture: Callable[[Plot], str]) -> str:
    """The page as a single HTML file; ``version`` is greenadapt's, ``picture`` gives a plot as SVG.

    Every text is escaped. The file's policy makes browsers run only its own script, and load nothing.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"harmless": _harmless, "hash": _hash, "kind": lambda block: type(block).__name__}
    assets = {"css": Markup(_asset("page.css")), "js": Markup(_asset("scheme.js") + _asset("page.js"))}
    template = environment.from_string(_asset("page.html.j2"))
    written = template.render(page=page, version=version, picture=lambda plot: Markup(picture(plot)), **assets)
    return harmless(written)  # texts must not turn the direction of the page


def _asset(name: str) -> str:
    return files("greenadapt.report.page").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _harmless(value: Any) -> Any:
    """Lists of harmless texts: JSON escapes the characters that ``harmless`` replaces."""
    return harmless(value) if isinstance(value, str) else [_harmless(item) for item in value]
