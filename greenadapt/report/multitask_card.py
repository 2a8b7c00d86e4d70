"""The README of a folder with many tasks on one encoder, and of a task that was added to one."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from greenadapt.config import AdapterConfig, SamplingConfig, TrainConfig
from greenadapt.report.card_text import (
    escaped,
    fenced,
    front_matter,
    input_name,
    memory_text,
    memory_words,
    options_of,
    reads_text,
    section,
    seed_words,
    spent,
)
from greenadapt.report.tables import Table, counted, set_name, task_score_tables
from greenadapt.storage.files import Json, plain
from greenadapt.storage.names import short
from greenadapt.tasks.tasks_file import TaskEntry

_CARD = """{front}
# {model}, fine-tuned for {n_tasks}

One encoder, which all tasks share, and for each task
{adapter},
as in Stickland and Murray, *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*
(arXiv 1902.02671). {trained}
{reads}{memory}{tasks}{data}{scores}
## Use

```sh
greenadapt predict --model FOLDER --task {first} --input {input} > predictions.jsonl
greenadapt finetune --tasks tasks.toml --add-to FOLDER    # more tasks, on the encoder as it is
greenadapt tasks FOLDER                                   # which there are
greenadapt tasks FOLDER --remove {first}
```

A task's own weights lie in `tasks/NAME/weights.safetensors`; plain transformers loads the encoder alone:

```python
from transformers import AutoModel, AutoTokenizer

model = AutoModel.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained({tokenizer})
```

## Made by

{command}

greenadapt {version}{cost}; `seeds/` holds each seed's history and its predictions on the test sets.
"""


_ADDED = """# {name}, a task added to {model}

The encoder stayed as it was; the task has
{adapter},
as in Stickland and Murray, *BERT and PALs* (arXiv 1902.02671).
{tasks}{data}{scores}
## Use

```sh
greenadapt predict --model FOLDER --task {name} --input {input} > predictions.jsonl
```

`FOLDER` is that of the encoder, which has this one in `tasks/`.

## Made by

{command}

greenadapt {version}{cost}; `seeds/` holds each seed's history and its predictions on the test sets.
"""


_ADAPTERS = {
    "pals": "projected attention layers whose projections its layers share",
    "low-rank": "low-rank layers",
    "attention": "attention layers of a small width",
    "ffn": "feed-forward layers of a small width",
    "lhuc": "a factor for every element of each layer's output",
    "houlsby": "two bottlenecks in each layer",
    "houlsby-pals": "a bottleneck and a projected attention layer in each layer",
    "top-attention": "projected attention layers on top",
    "top-ffn": "projected feed-forward layers on top",
    "bert-layer": "a layer of its own on top",
    "none": "nothing beside the head",
}


_SAMPLING = {
    "round-robin": "Every task made a step in turn.",
    "proportional": "Each step was of a task drawn in proportion to its number N of examples.",
    "square-root": "Each step was of a task drawn in proportion to the square root of its number of examples.",
    "anneal": "Each step was of a task drawn in proportion to N^a,\nN being its number of examples, and a falling from "
    "1 in the first epoch to 0.2 in the last.",
}


_OPTIONS = {f"--{name}": f"--adapter-{name}" for name in ("size", "heads", "form", "init")}


@dataclass(frozen=True)
class MultitaskCard:
    """What the card of many tasks says."""

    model: str
    """The model that was trained, by name or hub id."""
    base: str | None
    """The hub's id of the pretrained model that it was adapted from, or itself, where that is known."""
    given: str
    """What the user gave as ``--model``."""
    tasks: Mapping[str, Json]
    """Each task's ``task.json``."""
    weights: Mapping[str, int]
    """How many weights each task has of its own."""
    config: Json
    """The stage's configuration."""
    entries: Sequence[TaskEntry]
    """The tasks with their files or data sets."""
    scores: Json
    """``scores.json``."""
    examples: Json
    """How many examples each task has: ``train``, and the sets of ``dev`` and ``test`` by name."""
    version: str
    is_expanded: bool
    """Whether the model has added words."""
    memory: Json | None = None
    """What ``multitask.json`` says of its memory."""
    cost: Json | None = None
    """A ``Cost``, as JSON."""

    _text: ClassVar[str] = _CARD

    def text(self) -> str:
        """The card, in Markdown."""
        first = next(iter(self.tasks))
        return self._text.format(
            front=front_matter(self.base, tags=["multi-task"]),
            model=escaped(self.model),
            name=first,
            first=first,
            n_tasks=counted(len(self.tasks)),
            adapter=self._adapter(),
            trained=self._trained(),
            reads=reads_text(self.model, self.config, is_expanded=self.is_expanded),
            memory=memory_text(self.memory),
            tasks=self._tasks(),
            data=self._data(),
            scores="".join(section(table) for table in task_score_tables(self.scores)),
            input=input_name(self.tasks[first]),
            tokenizer='f"{FOLDER}/base_tokenizer"' if self.is_expanded else "FOLDER",
            command=fenced(self._command()),
            version=self.version,
            cost="" if self.cost is None else f"; {spent(self.cost)}",
        )

    def _adapter(self) -> str:
        name, layers = self.config["adapter"], self.config["layers"]
        of_layers = "" if layers == "all" else f" (layers: {layers})"
        return _ADAPTERS[name] + of_layers + ("" if name == "none" else " and a head")

    def _trained(self) -> str:
        return _SAMPLING[self.config["sampling"]] + (
            " Nothing else was trained: the encoder\nis that of the model it began with."
            if self.config["freeze_encoder"]
            else ""
        )

    def _tasks(self) -> str:
        rows = [
            [name, task["task"], task["metric"], ", ".join(map(str, task.get("labels", ()))), f"{self.weights[name]:,}"]
            for name, task in self.tasks.items()
        ]
        return section(Table("Tasks", ["task", "kind", "score", "labels", "weights of its own"], rows), n_left=4)

    def _data(self) -> str:
        rows = []
        for entry in self.entries:
            counts = self.examples[entry.name]
            rows.append([entry.name, "train", ", ".join(map(short, entry.train)), f"{counts['train']:,}"])
            for kind, sets in (("dev", entry.dev), ("test", entry.test)):
                rows += [
                    [set_name(entry.name, kind, name), kind, short(source), f"{counts[kind][name]:,}"]
                    for name, source in sets.items()
                ]
        return section(Table("Data", ["task", "set", "from", "examples"], rows), n_left=3)

    def _command(self) -> str:
        """The command line that gives this configuration, with files as others may read them."""
        config = plain(self.config)
        others = [part for default in (AdapterConfig(), SamplingConfig(), TrainConfig())
                  for part in options_of(self._given(config), default)]  # fmt: skip
        options = ["--tasks", "tasks.toml", *self._start(config), *(_OPTIONS.get(option, option) for option in others)]
        return shlex.join(["greenadapt", "finetune", *options, *seed_words(config["seeds"]), *self._end()])

    def _start(self, config: Json) -> list[str]:
        """The options of what training begins with."""
        return ["--model", short(self.given), *memory_words(self.memory, config)]

    def _end(self) -> list[str]:
        """The options of where the result goes."""
        return ["--out", "FOLDER"]

    def _given(self, config: Json) -> Json:
        """``config`` as far as it was asked for."""
        return config


@dataclass(frozen=True)
class AddedTaskCard(MultitaskCard):
    """What the card of one task says that was added to ``model``; ``given`` is what the user gave as ``--add-to``."""

    _text: ClassVar[str] = _ADDED

    def _start(self, config: Json) -> list[str]:
        return ["--add-to", short(self.given)]

    def _end(self) -> list[str]:
        return []

    def _given(self, config: Json) -> Json:
        return {**config, "freeze_encoder": False}  # which goes without saying
