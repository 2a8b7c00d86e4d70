"""What a page is made of: sections of paragraphs, tables, plots, examples and a search; and the page as HTML."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any, ClassVar

from markupsafe import Markup

from greenadapt.errors import harmless
from greenadapt.report.tables import Table
from greenadapt.storage.files import Json

_FEW = 12  # marks that are told in words


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Shown:
    """A table; ``numbers`` are the columns that hold numbers, all but the first if not given."""

    kind: ClassVar[str] = "table"
    table: Table
    numbers: Sequence[int] | None = None

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers."""
        return column > 0 if self.numbers is None else column in self.numbers


@dataclass(frozen=True)
class Plot:
    """A plot (Vega-Lite) and the table of what it shows."""

    kind: ClassVar[str] = "plot"
    name: str
    """Name of its file, unique on a page."""
    title: str
    spec: Json
    shown: Shown
    is_wide: bool = False

    @property
    def in_words(self) -> str:
        """The title, and what the marks are if they are few."""
        marks = [value["tip"] for value in self.spec["data"]["values"]]
        return f"{self.title}: {'; '.join(marks)}" if len(marks) <= _FEW else self.title


@dataclass(frozen=True)
class Example:
    """A labelled text with what is right and what each model said."""

    text: str
    lines: Sequence[tuple[str, str]]
    """Who says it, and what."""


@dataclass(frozen=True)
class Examples:
    """Some examples under a title."""

    kind: ClassVar[str] = "examples"
    title: str
    examples: Sequence[Example]


@dataclass(frozen=True)
class Search:
    """Neighbours of words, found by typing a word."""

    kind: ClassVar[str] = "search"
    name: str
    """Unique on a page."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Sequence[str]]]
    """Each word and, by column, its neighbours."""
    elsewhere: str
    """What to do for other words."""


Block = Heading | Paragraph | Facts | Shown | Plot | Examples | Search


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
    """What a page does not show, and what would make it."""

    what: str
    commands: Sequence[str]


@dataclass(frozen=True)
class Page:
    """Everything on a page."""

    title: str
    about: str
    sections: Sequence[Section]
    missing: Sequence[Missing] = field(default=())

    def plots(self) -> list[Plot]:
        """Its plots in order."""
        return [plot for section in self.sections for plot in section.plots()]


def html(page: Page, version: str, picture: Callable[[Plot], str]) -> str:
    """The page as one file that needs nothing else; ``version`` is greenadapt's, ``picture`` gives a plot as SVG.

    Every text is escaped, and the browser is told to run only the page's own script and to load nothing.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"harmless": _harmless, "hash": _hash}
    assets = {"css": Markup(_asset("page.css")), "js": Markup(_asset("scheme.js") + _asset("page.js"))}
    template = environment.from_string(_asset("page.html.j2"))
    written = template.render(page=page, version=version, picture=lambda plot: Markup(picture(plot)), **assets)
    return harmless(written)  # texts must not turn the direction of the page


def _asset(name: str) -> str:
    return files("greenadapt.report.page").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _harmless(value: Any) -> Any:
    """Lists of texts, as they are shown: JSON escapes what ``harmless`` looks for."""
    return harmless(value) if isinstance(value, str) else [_harmless(one) for one in value]
