"""The README of a pre-trained model's folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from greenadapt.report.card_text import Card, escaped, section
from greenadapt.report.tables import loss_tables
from greenadapt.storage.files import Json, short

_ABOUT = """
The model {model}, trained further as a masked language model ({share:.0%} of the {unit}, {trained}) on {documents:,}
documents of {texts}, {pieces:,} pieces.{tokenizations}{head}{memory}
"""

_USE = """
## Use

```python
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained({tokenizer})
```

```sh
greenadapt finetune --model FOLDER --task ner --train train.tsv --test test.tsv
```
"""


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

    closing: ClassVar[str] = "; `history.jsonl` has a line per epoch."

    @property
    def title(self) -> str:
        return f"{escaped(self.model)}, pre-trained on {self._texts()}"

    @property
    def pipeline(self) -> str:
        return "fill-mask"

    @property
    def library(self) -> str:
        return "transformers"

    @property
    def training(self) -> str:
        return "pre-training"

    def parts(self) -> Sequence[str]:
        about = _ABOUT.format(
            model=escaped(self.model),
            texts=self._texts(),
            share=self.config["mask_share"],
            unit="pieces, whole words" if self.config["whole_words"] else "pieces",
            trained="only the rows of added words" if self.config["only_new_rows"] else "all weights",
            documents=self.counts["documents"],
            pieces=self.counts["pieces"],
            tokenizations=self._tokenizations(),
            head=self._head(),
            memory=self._memory(),
        )
        losses = [section(table, n_left=2) for table in loss_tables(self.scores)]
        return about, self.sentences, *losses, _USE.format(tokenizer=self.tokenizer)

    def _texts(self) -> str:
        return ", ".join(f"*{escaped(short(text))}*" for text in self.texts)

    def _tokenizations(self) -> str:
        if not self.is_expanded:
            return ""
        return (
            "\nAn input was read by the model's own tokenizer or by the expanded one; added words were read, and never "
            "predicted.\n`base_tokenizer/` holds the model's own tokenizer, the folder itself the expanded one."
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
