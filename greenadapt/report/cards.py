"""The READMEs of models: their front matter, and the values of the template ``card.md.j2``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from markupsafe import Markup

from greenadapt.checkpoints.layout import set_name
from greenadapt.config import ADAPTERS, AdapterConfig
from greenadapt.corpus.opening import hub_data_set
from greenadapt.errors import as_percent, harmless, one_line, pluralize
from greenadapt.report.tables import ADVICE, VIEW_NAMES, Table, loss_tables, score_tables
from greenadapt.store.files import Json, shorten_path
from greenadapt.tasks.tasks_file import TaskEntry
from greenadapt.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

_SENTENCES = "feature-extraction"
_PIPELINES = {"ner": "token-classification", "classification": "text-classification", "qa": "question-answering"}
_INPUTS = {"ner": "text.txt.gz", "classification": "texts.txt", "qa": "questions.jsonl"}

# Marks of Markdown; an underscore within a word is none.
_MARKS = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")


@dataclass(frozen=True, kw_only=True)
class Card:
    """The README of a model's folder."""

    model: str
    """The model that was adapted or trained, by name or hub id."""
    base: str | None = None
    """The hub's id of the pretrained model, if known."""
    licence_of_base: Json | None = None
    """The entries of the pretrained model's card that state its licence, if known."""
    commands: Sequence[str] = ()
    """The command lines that made it; none if a Python program made it."""
    is_expanded: bool = True
    """Whether the model has added words."""
    reads_sentences: bool = False
    """Whether ``sentence-transformers`` loads the model, with the expanded tokenizer."""
    cost: Json | None = None
    """A ``Cost``, as JSON."""

    kind: ClassVar[str]
    """Its part of the template."""
    training: ClassVar[str | None] = None
    """The hub's name of the training that had the cost."""
    tags: ClassVar[Sequence[str]] = ()

    @property
    def pipeline(self) -> str | None:
        """The hub's name of the model's task: not sentence similarity, of which the card warns."""
        return _SENTENCES if self.reads_sentences else None

    def data(self) -> Iterable[str]:
        """The sources of the labels."""
        return ()

    def tables(self) -> list[Table]:
        """The tables of data and scores."""
        return []

    def front(self) -> str:
        """The YAML at the top, as ``huggingface_hub`` writes it."""
        from huggingface_hub import ModelCardData

        data = ModelCardData(
            base_model=self.base,
            library_name="sentence-transformers" if self.pipeline == _SENTENCES else "transformers",
            pipeline_tag=self.pipeline,
            tags=["greenadapt", "domain-adaptation", *self.tags],
            datasets=sorted(filter(None, map(hub_data_set, self.data()))) or None,
            co2_eq_emissions=self._emissions(),
            **(self.licence_of_base or {}),
        )
        return f"---\n{data.to_yaml()}\n---"

    def _emissions(self) -> Json | None:
        """The cost in the hub's format: ``emissions`` are grams of CO₂-equivalent."""
        if self.cost is None:
            return None
        source = f"greenadapt; energy: {self.cost['energy_source']}; carbon: {self.cost['co2_source']}"
        training = {"training_type": self.training} if self.training else {}
        return {"emissions": float(f"{1000 * self.cost['co2_kg']:.3g}"), "source": source, **training}

    def text(self) -> str:
        """The card, in Markdown."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"card": self, "kind": self.kind, "front": Markup(self.front()), "tables": self.tables()}
        return re.sub("\n{3,}", "\n\n", _template().render(values)).strip() + "\n"


@dataclass(frozen=True, kw_only=True)
class AdaptedCard(Card):
    """The card of a model with new rows for the words of a corpus."""

    corpus: str
    """Its title."""
    licence: str
    align: Json
    """The configuration of the stage."""
    expand: Json
    counts: Json
    rows: Json
    """The recipe of the new rows, and figures of recipes on held-out words."""
    imported: bool = False
    """Whether the vectors were made elsewhere."""

    kind: ClassVar[str] = "adapted"


@dataclass(frozen=True, kw_only=True)
class PretrainCard(Card):
    """The card of a pre-trained model."""

    texts: tuple[str, ...]
    """The values of ``--text``."""
    memory: Json | None = None
    """The general model, ``name``, ``source`` and ``sha256``."""
    config: Json
    """The stage's configuration."""
    scores: Json
    """``scores.json``."""
    counts: Json

    kind: ClassVar[str] = "pretrained"
    training: ClassVar[str | None] = "pre-training"

    @property
    def pipeline(self) -> str:
        return "fill-mask"

    def tables(self) -> list[Table]:
        return loss_tables(self.scores)


@dataclass(frozen=True, kw_only=True)
class TaskCard(Card):
    """The card of a model of one task."""

    head: str
    """The transformers class is ``AutoModelFor`` and this."""
    task: Json
    """The task's ``settings()``, and the model's ``pool``."""
    config: Json
    """The stage's configuration: the fields of ``TaskConfig`` and ``TrainConfig``, and ``seeds``."""
    sources: Mapping[str, str]
    """``train 1``, ``train 2`` …, ``dev``, ``test`` → the file or data set."""
    scores: Json
    """``scores.json``."""
    counts: Json
    """How many examples ``train``, ``dev`` and ``test`` have."""

    kind: ClassVar[str] = "task"
    training: ClassVar[str | None] = "fine-tuning"

    @property
    def pipeline(self) -> str:
        return _PIPELINES[self.task["task"]]

    def data(self) -> Iterable[str]:
        return self.sources.values()

    def tables(self) -> list[Table]:
        names: dict[str, list[str]] = {}
        for name, source in self.sources.items():
            names.setdefault(name.split()[0], []).append(shorten_path(source))
        rows = [[name, ", ".join(sources), f"{self.counts[name]:,}"] for name, sources in names.items()]
        return [Table("Data", ["set", "from", "examples"], rows, (2,)), *score_tables(self.scores)]


@dataclass(frozen=True, kw_only=True)
class MultitaskCard(Card):
    """The card of many tasks on one encoder."""

    tasks: Mapping[str, Json]
    """Each task's ``task.json``."""
    weights: Mapping[str, int]
    """The number of weights that only this task has."""
    config: Json
    """The stage's configuration."""
    entries: Sequence[TaskEntry]
    """The tasks with their files or data sets."""
    scores: Json
    """``scores.json``."""
    examples: Json
    """The number of examples of each task: ``train``, and the sets of ``dev`` and ``test`` by name."""
    memory: Json | None = None
    """The memory's entry in ``multitask.json``."""

    kind: ClassVar[str] = "tasks"
    training: ClassVar[str | None] = "fine-tuning"
    tags: ClassVar[Sequence[str]] = ("multi-task",)

    @property
    def n_stacked(self) -> int | None:
        """The number of layers of an adapter on top of the encoder."""
        is_stack = ADAPTERS[self.config["adapter"]].has_stack
        return self.config.get("top_layers", AdapterConfig.top_layers) if is_stack else None

    def data(self) -> Iterable[str]:
        return [
            source for entry in self.entries for source in (*entry.train, *entry.dev.values(), *entry.test.values())
        ]

    def tables(self) -> list[Table]:
        tasks = [
            [name, task["task"], task["metric"], ", ".join(map(str, task.get("labels", ()))), f"{self.weights[name]:,}"]
            for name, task in self.tasks.items()
        ]
        data = []
        for entry in self.entries:
            counts = self.examples[entry.name]
            data.append([entry.name, "train", ", ".join(map(shorten_path, entry.train)), f"{counts['train']:,}"])
            for kind, sets in (("dev", entry.dev), ("test", entry.test)):
                for name, source in sets.items():
                    label = set_name(entry.name, kind, name)
                    data.append([label, kind, shorten_path(source), f"{counts[kind][name]:,}"])
        return [
            Table("Tasks", ["task", "kind", "score", "labels", "weights of its own"], tasks, (4,)),
            Table("Data", ["task", "set", "from", "examples"], data, (3,)),
            *score_tables(self.scores),
        ]


def escape_markdown(text: str) -> str:
    """``text`` in one line, with the marks of Markdown and HTML escaped."""
    return _MARKS.sub(r"\\\g<0>", escape(" ".join(one_line(text).split()), quote=False))


def code(text: str) -> str:
    """``text`` in one line, as code within a line."""
    text = " ".join(one_line(text).split())
    marks = "`" * (1 + _longest_run(text))
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"


def fence(lines: Sequence[str]) -> str:
    """A block of shell commands."""
    text = harmless("\n".join(lines))
    marks = "`" * max(3, 1 + _longest_run(text))
    return f"{marks}sh\n{text}\n{marks}"


def _longest_run(text: str) -> int:
    """The most backticks in a row."""
    return max(map(len, re.findall("`+", text)), default=0)


def section(table: Table) -> str:
    """A heading and a table, with numbers on the right of their columns."""
    rules = ["---:" if table.is_number(i) else "---" for i in range(len(table.columns))]
    lines = "\n".join(f"| {' | '.join(map(escape_markdown, line))} |" for line in (table.columns, rules, *table.rows))
    return f"\n## {escape_markdown(table.title[:1].upper() + table.title[1:])}\n\n{lines}\n"


def format_cost(cost: Json) -> str:
    """Seconds, watt-hours and the source of the energy of a ``Cost`` as JSON."""
    return f"{cost['seconds']:,.0f} seconds, {1000 * cost['energy_kwh']:.3g} Wh ({cost['energy_source']})"


def example_file(task: Json) -> str:
    """A name for the input file of ``predict``; ``task`` are the task's ``settings()``."""
    return "pairs.jsonl" if len(task.get("text_fields", ())) == 2 else _INPUTS[task["task"]]


def _to_markdown(value: Any) -> Any:
    """A value as the template inserts it: a text is escaped unless a filter has made it Markdown."""
    if isinstance(value, Markup):
        return value
    return Markup(f"{value:,}" if isinstance(value, int) else escape_markdown(str(value)))


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    # With autoescape the results of macros count as Markdown; ``finalize`` comes before HTML would be escaped.
    environment = Environment(
        autoescape=True, finalize=_to_markdown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for name, write in {"code": code, "fenced": fence, "section": section, "verbatim": harmless}.items():
        environment.filters[name] = lambda *values, write=write: Markup(write(*values))
    environment.filters |= {"pluralize": pluralize, "example_file": example_file, "percent": as_percent}
    environment.filters |= {"short": shorten_path, "spent": format_cost}
    environment.globals |= {"version": __version__, "views": VIEW_NAMES, "advice": ADVICE}
    return environment.from_string(files("greenadapt.report").joinpath("card.md.j2").read_text("utf-8"))
