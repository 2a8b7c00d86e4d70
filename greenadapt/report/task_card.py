"""The README of a fine-tuned model's folder."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from greenadapt.report.card_text import (
    Card,
    Measured,
    code,
    escaped,
    example_file,
    memory_text,
    reads_text,
    section,
)
from greenadapt.report.tables import Table, score_tables
from greenadapt.storage.files import Json, short

_USE = """
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
        use = _USE.format(input=example_file(self.task), use=self._use())
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
