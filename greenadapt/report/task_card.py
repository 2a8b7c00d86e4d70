"""The README of a fine-tuned model's folder."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from greenadapt.config import TaskConfig, TrainConfig
from greenadapt.report.card_text import (
    code,
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
from greenadapt.report.tables import Table, score_tables
from greenadapt.storage.files import Json, plain
from greenadapt.storage.names import short

_CARD = """{front}
# {model}, fine-tuned for {what}

{reads}{memory}{data}{labels}{scores}
## Use

```sh
greenadapt predict --model FOLDER --input {input} > predictions.jsonl
```

{use}

```python
from transformers import AutoModelFor{head}, AutoTokenizer

model = AutoModelFor{head}.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained({tokenizer})
```

## Made by

{command}

greenadapt {version}{cost}; `seeds/` holds each seed's history{predictions}.
"""


_PIPELINES = {"ner": "token-classification", "classification": "text-classification", "qa": "question-answering"}


_WHAT = {"ner": "named entity recognition", "classification": "classification", "qa": "question answering"}


_OPTIONS = {"--text-fields": "--text-field", "--label-kind": "--labels"}


@dataclass(frozen=True)
class TaskCard:
    """What the card of a fine-tuned model says."""

    model: str
    """The model that was trained, by name or hub id."""
    base: str | None
    """The hub's id of the pretrained model that it was adapted from, or itself, where that is known."""
    given: str
    """What the user gave as ``--model``."""
    head: str
    """The transformers class is ``AutoModelFor`` and this."""
    task: Json
    """The task's ``settings()``."""
    config: Json
    """The stage's configuration: the fields of ``TaskConfig`` and ``TrainConfig``, and ``seeds``."""
    sources: Mapping[str, str]
    """``train 1``, ``train 2`` …, ``dev``, ``test`` → the file or data set."""
    scores: Json
    """``scores.json``."""
    counts: Json
    """How many examples ``train``, ``dev`` and ``test`` have."""
    version: str
    is_expanded: bool
    """Whether the model has added words."""
    cost: Json | None = None
    """A ``Cost``, as JSON."""

    def text(self) -> str:
        """The card, in Markdown."""
        name = self.task["task"]
        return _CARD.format(
            front=front_matter(self.base, pipeline=_PIPELINES[name]),
            model=escaped(self.model),
            what=_WHAT[name],
            reads=reads_text(self.model, self.config, is_expanded=self.is_expanded),
            memory=memory_text(self.task.get("memory")),
            data=self._data(),
            labels=self._labels(),
            scores="".join(section(table) for table in score_tables(self.scores)),
            input=input_name(self.task),
            use=self._use(),
            head=self.head,
            tokenizer='f"{FOLDER}/base_tokenizer"' if self.is_expanded else "FOLDER",
            command=fenced(self._command()),
            version=self.version,
            cost="" if self.cost is None else f"; {spent(self.cost)}",
            predictions=" and its predictions on the test set" if "test" in self.sources else "",
        )

    def _use(self) -> str:
        if not self.is_expanded or self.config["pool"] == "base":
            return "reads the model's own tokenization, as plain transformers does:"
        does = "averages both tokenizations" if self.config["pool"] == "mean" else "reads the expanded tokenization"
        return f"{does}. With plain transformers, by the model's own tokenization:"

    def _data(self) -> str:
        named: dict[str, list[str]] = {}
        for name, source in self.sources.items():
            named.setdefault(name.split()[0], []).append(short(source))
        rows = [[name, ", ".join(files), f"{self.counts[name]:,}"] for name, files in named.items()]
        return section(Table("Data", ["set", "from", "examples"], rows))

    def _labels(self) -> str:
        labels = self.task.get("labels")
        return f"\nLabels: {', '.join(code(str(label)) for label in labels)}\n" if labels else ""

    def _command(self) -> str:
        """The command line that gives this configuration, with files as others may read them."""
        config = plain(self.config)
        options = ["--model", short(self.given), *memory_words(self.task.get("memory"), config)]
        for name, source in self.sources.items():
            options += [f"--{name.split()[0]}", short(source)]
        if config["chunk"] is None:
            options.append("--whole-sentences")
            config["chunk"] = TaskConfig.chunk
        examples = {**config, "task": TaskConfig.task}
        others = [*options_of(examples, TaskConfig()), *options_of(config, TrainConfig())]
        options += [_OPTIONS.get(option, option) for option in others]
        options += [*seed_words(config["seeds"]), "--out", "FOLDER"]
        return shlex.join(["greenadapt", "finetune", "--task", config["task"], *options])
