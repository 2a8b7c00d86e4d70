"""The READMEs of fine-tuned models, of one task or of many on one encoder."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from greenadapt.config import ADAPTERS, AdapterConfig
from greenadapt.errors import counted
from greenadapt.report.cards import Card, Measured, code, escaped, example_file, memory_text, reads_text, section
from greenadapt.report.tables import Table, score_tables, set_name
from greenadapt.storage.files import Json, short
from greenadapt.tasks.tasks_file import TaskEntry

_USE_TASK = """
## Use

```sh
greenadapt predict --model FOLDER --input {input} > predictions.jsonl
```

{use}
"""
_PLAIN = """
```python
from transformers import AutoModelFor{head}, AutoTokenizer

model = AutoModelFor{head}.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained({tokenizer})
```
"""
_DEEP = """Load it with greenadapt only: its head has two layers, and
plain transformers would draw a new one with random weights in its place.
"""


PIPELINES = {"ner": "token-classification", "classification": "text-classification", "qa": "question-answering"}


_WHAT = {"ner": "named entity recognition", "classification": "classification", "qa": "question answering"}


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

    @property
    def title(self) -> str:
        return f"{escaped(self.model)}, fine-tuned for {_WHAT[self.task['task']]}"

    @property
    def pipeline(self) -> str:
        return PIPELINES[self.task["task"]]

    @property
    def training(self) -> str:
        return "fine-tuning"

    def data(self) -> Collection[str]:
        return self.sources.values()

    def measured(self) -> Sequence[Measured]:
        main, seeds = self.scores["main"], self.scores["seeds"]
        values = [seed["test"][main] for seed in seeds if seed.get("test", {}).get(main) is not None]
        if "test" not in self.sources or len(values) < len(seeds):
            return ()
        return [Measured(self.pipeline, self.sources["test"], main, fmean(values))]

    @property
    def closing(self) -> str:  # type: ignore[override]
        predictions = " and its predictions on the test set" if "test" in self.sources else ""
        return f"; `seeds/` holds each seed's history{predictions}."

    def parts(self) -> Sequence[str]:
        use = _USE_TASK.format(input=example_file(self.task), use=self._use())
        reads = reads_text(self.model, self.config, is_expanded=self.is_expanded)
        scores = [section(table) for table in score_tables(self.scores)]
        return reads, memory_text(self.task.get("memory")), self._data(), self._labels(), *scores, use

    def _use(self) -> str:
        is_deep = self.task.get("head_layers", 1) > 1
        plain = _PLAIN.format(head=self.head, tokenizer=self.tokenizer)
        pool = self.task.get("pool", self.config["pool"])
        if not self.is_expanded or pool == "base":
            does = "reads the model's own tokenization"
            return f"{does}. {_DEEP}" if is_deep else f"{does}, as plain transformers does:\n{plain}"
        does = "averages both tokenizations" if pool == "mean" else "reads the expanded tokenization"
        if is_deep:
            return f"{does}. {_DEEP}"
        return f"{does}. With plain transformers, by the model's own tokenization:\n{plain}"

    def _data(self) -> str:
        named: dict[str, list[str]] = {}
        for name, source in self.sources.items():
            named.setdefault(name.split()[0], []).append(short(source))
        rows = [[name, ", ".join(files), f"{self.counts[name]:,}"] for name, files in named.items()]
        return section(Table("Data", ["set", "from", "examples"], rows))

    def _labels(self) -> str:
        labels = self.task.get("labels")
        return f"\nLabels: {', '.join(code(str(label)) for label in labels)}\n" if labels else ""


_ABOUT_MULTITASK = """
One encoder, which all tasks share, and for each task
{adapter},
as in Stickland and Murray, *BERT and PALs: Projected Attention Layers for Efficient Adaptation in Multi-Task Learning*
(arXiv 1902.02671). {trained}
"""

_USE_MULTITASK = """
## Use

```sh
greenadapt predict --model FOLDER --task {first} --input {input} > predictions.jsonl
greenadapt finetune --tasks tasks.toml --add-to FOLDER    # more tasks, on the encoder as it is
greenadapt tasks FOLDER                                   # list the tasks
greenadapt tasks FOLDER --remove {first}
```

A task's own weights lie in `tasks/NAME/weights.safetensors`; plain transformers loads the encoder alone:

```python
from transformers import AutoModel, AutoTokenizer

model = AutoModel.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained({tokenizer})
```
"""

_USE_ADDED = """
## Use

```sh
greenadapt predict --model FOLDER --task {first} --input {input} > predictions.jsonl
```

`FOLDER` is that of the encoder, which has this one in `tasks/`.
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
    "top-ffn-2": "projected feed-forward layers of two hidden layers on top",
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


@dataclass(frozen=True, kw_only=True)
class MultitaskCard(Card):
    """The card of many tasks."""

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
    memory: Json | None = None
    """What ``multitask.json`` says of its memory."""

    tags: ClassVar[Sequence[str]] = ("multi-task",)
    closing: ClassVar[str] = "; `seeds/` holds each seed's history and its predictions on the test sets."

    @property
    def title(self) -> str:
        return f"{escaped(self.model)}, fine-tuned for {counted(len(self.tasks), 'task')}"

    @property
    def training(self) -> str:
        return "fine-tuning"

    def data(self) -> Sequence[str]:
        return [source for one in self.entries for source in (*one.train, *one.dev.values(), *one.test.values())]

    def measured(self) -> Sequence[Measured]:
        found = []
        for entry in self.entries:
            sets = self.scores["tasks"].get(entry.name, {}).get("test", {})
            pipeline, metric = PIPELINES[self.tasks[entry.name]["task"]], self.scores["metrics"][entry.name]
            found += [
                Measured(pipeline, entry.test[name], metric, over["mean"])
                for name, over in sets.items()
                if over["mean"] is not None and name in entry.test
            ]
        return found

    def parts(self) -> Sequence[str]:
        about = _ABOUT_MULTITASK.format(adapter=self._adapter(), trained=self._trained())
        reads = reads_text(self.model, self.config, is_expanded=self.is_expanded)
        return about.rstrip() + "\n" + reads, memory_text(self.memory), *self._sections(_USE_MULTITASK)

    def _sections(self, use: str) -> list[str]:
        first = next(iter(self.tasks))
        used = use.format(first=first, input=example_file(self.tasks[first]), tokenizer=self.tokenizer)
        return [self._tasks(), self._data(), *map(section, score_tables(self.scores)), used]

    def _adapter(self) -> str:
        name, layers = self.config["adapter"], self.config["layers"]
        of_layers = "" if layers == "all" else f" (layers: {layers})"
        if ADAPTERS[name].has_stack:
            n_layers = self.config.get("top_layers", AdapterConfig.top_layers)
            of_layers = f" ({counted(n_layers, 'layer')})"
        shared = " (all tasks share the projections)" if self.config.get("share_projections") else ""
        pooler = ", a pooler" if self.config.get("own_pooler") else ""
        return _ADAPTERS[name] + of_layers + shared + pooler + ("" if name == "none" else " and a head")

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


class AddedTaskCard(MultitaskCard):
    """The card of one task that was added to ``model``."""

    @property
    def title(self) -> str:
        return f"{next(iter(self.tasks))}, a task added to {escaped(self.model)}"

    def front(self) -> str:
        return ""

    def parts(self) -> Sequence[str]:
        about = (
            f"The encoder stayed as it was; the task has\n{self._adapter()},\n"
            "as in Stickland and Murray, *BERT and PALs* (arXiv 1902.02671)."
        )
        return about, *self._sections(_USE_ADDED)
