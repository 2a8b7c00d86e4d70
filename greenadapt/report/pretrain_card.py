"""The README of a pre-trained model's folder."""

import shlex
from dataclasses import asdict, dataclass

from greenadapt.config import GMAP_PRETRAINING, PretrainConfig, TrainConfig
from greenadapt.report.card_text import (
    SENTENCES,
    escaped,
    fenced,
    front_matter,
    memory_options,
    options_of,
    section,
    spent,
)
from greenadapt.report.tables import loss_tables
from greenadapt.storage.files import Json, plain
from greenadapt.storage.names import short

_CARD = """{front}
# {model}, pre-trained on {texts}

The model {model}, trained further as a masked language model ({share:.0%} of the {unit}, {trained}) on {documents:,}
documents of {texts}, {pieces:,} pieces.{tokenizations}{head}{memory}
{sentences}{losses}
## Use

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained({tokenizer})
```

```sh
greenadapt finetune --model FOLDER --task ner --train train.tsv --test test.tsv
```

## Made by

{command}

greenadapt {version}; {cost}; `history.jsonl` has a line an epoch.
"""


@dataclass(frozen=True)
class PretrainCard:
    """What the card of a pre-trained model says."""

    model: str
    """The model that was trained, by name or hub id."""
    base: str | None
    """The hub's id of the pretrained model that it was adapted from, or itself, where that is known."""
    given: str
    """What the user gave as ``--model``."""
    texts: tuple[str, ...]
    """What was given as ``--text``."""
    general_text: str | None
    memory: Json | None
    """The general model, ``name``, ``source`` and ``sha256``."""
    config: Json
    """The stage's configuration."""
    scores: Json
    """``scores.json``."""
    counts: Json
    version: str
    is_expanded: bool
    """Whether the model has added words."""
    cost: Json
    reads_sentences: bool = False
    """Whether ``sentence-transformers`` loads the model, and by the expanded tokenizer."""

    def text(self) -> str:
        """The card, in Markdown."""
        return _CARD.format(
            front=front_matter(self.base, pipeline="fill-mask"),
            model=escaped(self.model),
            texts=", ".join(f"*{escaped(short(text))}*" for text in self.texts),
            share=self.config["mask_share"],
            unit="pieces, whole words" if self.config["whole_words"] else "pieces",
            trained="only the rows of added words" if self.config["only_new_rows"] else "all weights",
            documents=self.counts["documents"],
            pieces=self.counts["pieces"],
            tokenizations=self._tokenizations(),
            head=self._head(),
            memory=self._memory(),
            sentences=SENTENCES if self.reads_sentences else "",
            losses="".join(section(table, n_left=2) for table in loss_tables(self.scores)),
            tokenizer='f"{FOLDER}/base_tokenizer"' if self.is_expanded else "FOLDER",
            command=fenced(self._command()),
            version=self.version,
            cost=spent(self.cost),
        )

    def _tokenizations(self) -> str:
        if not self.is_expanded:
            return ""
        return (
            "\nAn input was read by the model's own tokenizer or by the expanded one; added words were read, and never "
            "to be guessed.\n`base_tokenizer/` holds the model's own tokenizer, the folder itself the expanded one."
        )

    def _head(self) -> str:
        steps = self.scores["new_head_steps"]
        if steps is None:
            return ""
        trained = (
            f"was trained alone for {steps:,} steps\nbefore the losses below were measured" if steps else "was drawn"
        )
        return f"\nThe model had no head for masked language modelling: its head {trained}."

    def _memory(self) -> str:
        if self.memory is None:
            return ""
        return (
            f"\nIn training it saw the states of the general model {escaped(self.memory['name'])} as memory, strategy "
            f"`{self.config['memory']['strategy']}`, as in Wan et al.,\n*G-MAP: General Memory-Augmented Pre-trained "
            "Language Model for Domain Tasks* (arXiv 2212.03613). The losses below are with it;\nplain transformers "
            "loads this model without it."
        )

    def _command(self) -> str:
        """The command line that gives this configuration, with files as others may read them."""
        config, training = plain(self.config), TrainConfig(**GMAP_PRETRAINING)
        options = ["--model", short(self.given)]
        options += [part for text in self.texts for part in ("--text", short(text))]
        options += ["--format", config["format"]] if config["format"] else []
        options += [part for field in config["fields"] for part in ("--field", field)]
        options += ["--general-text", short(self.general_text)] if self.general_text is not None else []
        if self.memory is not None:
            options += ["--memory", short(self.memory["source"]), *memory_options(config["memory"])]
        options += options_of(config, PretrainConfig())
        options += options_of(asdict(training) | config, training)  # no settings of a task
        return shlex.join(["greenadapt", "pretrain", *options, "--out", "FOLDER"])
