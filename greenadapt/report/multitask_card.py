"""The README of a folder with many tasks on one encoder, and of a task that was added to one."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from greenadapt.config import AdapterConfig, SamplingConfig, TrainConfig
from greenadapt.report.card import memory_options, options_of
from greenadapt.report.markdown import section, short, spent
from greenadapt.report.multitask_tables import counted, set_name, task_score_tables
from greenadapt.report.score_tables import Table
from greenadapt.report.trained_text import memory_text, reads_text
from greenadapt.store import plain

Json = dict[str, Any]

_CARD = """---
base_model: {base}
library_name: transformers
tags:
- greenadapt
- domain-adaptation
- multi-task
---

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

```sh
{command}
```

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

```sh
{command}
```

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
_INPUTS = {"ner": "text.txt.gz", "classification": "texts.txt", "qa": "questions.jsonl"}
_OPTIONS = {f"--{name}": f"--adapter-{name}" for name in ("size", "heads", "form", "init")}


@dataclass(frozen=True)
class MultitaskCard:
    """What the card tells of many tasks, or of one that is added."""

    model: str
    """The model that was trained, or that the task is added to, by name or hub id."""
    base: str
    """The pretrained model that it was adapted from, or itself."""
    given: str
    """What the user gave as ``--model`` or ``--add-to``; of a path only the last part is told."""
    tasks: Mapping[str, Json]
    """Each task's ``task.json``."""
    weights: Mapping[str, int]
    """How many weights each task has of its own."""
    config: Json
    """The stage's configuration."""
    sources: Mapping[str, str]
    """``cola: train 1``, ``mnli: dev m`` … → the file or data set; of a path only the last part is told."""
    scores: Json
    """``scores.json``."""
    examples: Json
    """How many examples each task has: ``train``, and the sets of ``dev`` and ``test`` by name."""
    version: str
    is_expanded: bool
    """Whether the model has added words."""
    memory: Json | None = None
    """What ``multitask.json`` says of its memory."""
    adds: bool = False
    """Whether the one task is added to a model that was trained before."""
    cost: Json | None = None
    """A ``Cost``, as JSON."""

    def text(self) -> str:
        """The card, in Markdown."""
        first = next(iter(self.tasks))
        return (_ADDED if self.adds else _CARD).format(
            model=self.model,
            base=self.base,
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
            input=self._input(self.tasks[first]),
            tokenizer='f"{FOLDER}/base_tokenizer"' if self.is_expanded else "FOLDER",
            command=self._command(),
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
        named: dict[tuple[str, str, str], list[str]] = {}
        for what, source in self.sources.items():
            task, _, part = what.partition(": ")
            kind, name = part.split(" ", 1)
            named.setdefault((task, kind, kind if kind == "train" else name), []).append(short(source))
        rows = []
        for (task, kind, name), files in named.items():
            counts = self.examples[task][kind]
            n = counts if kind == "train" else counts[name]
            rows.append([set_name(task, kind, name), kind, ", ".join(files), f"{n:,}"])
        return section(Table("Data", ["task", "set", "from", "examples"], rows), n_left=3)

    def _input(self, task: Json) -> str:
        return "pairs.jsonl" if len(task.get("text_fields", ())) == 2 else _INPUTS[task["task"]]

    def _command(self) -> str:
        """The command line that gives this configuration, with the files' names alone."""
        config = plain(self.config)
        options = ["--tasks", "tasks.toml", "--add-to" if self.adds else "--model", short(self.given)]
        if self.memory is not None and not self.adds:
            options += ["--memory", short(self.memory["general"]["source"]), *memory_options(config["memory"])]
        adapter = {**config, "freeze_encoder": config["freeze_encoder"] and not self.adds}
        others = [part for default in (AdapterConfig(), SamplingConfig(), TrainConfig())
                  for part in options_of(adapter, default)]  # fmt: skip
        options += [_OPTIONS.get(option, option) for option in others]
        seeds = config["seeds"]
        options += ["--seeds", str(len(seeds))] if len(seeds) > 1 else []
        options += ["--seed", str(seeds[0])] if seeds[0] else []
        return shlex.join(["greenadapt", "finetune", *options])
