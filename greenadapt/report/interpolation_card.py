"""The README of a folder with a model between two others."""

import shlex
from dataclasses import dataclass

from greenadapt.report.card_text import SENTENCES, escaped, fenced, front_matter

_CARD = """{front}
# {model} and {general}, interpolated

Every weight of the encoder is {share:g} times that of {general} and {rest:g} times that of {model}; the rows of added
words, a head where there is one, and the tokenizers are those of {model}.
{sentences}
## Made by

{command}

greenadapt {version}
"""


@dataclass(frozen=True)
class InterpolationCard:
    """What the card of an interpolated model says."""

    model: str
    general: str
    weight: float
    """The share of ``general``."""
    version: str
    base: str | None
    """The hub's id of the pretrained model, where that is known."""
    reads_sentences: bool = False
    """Whether ``sentence-transformers`` loads the model, and by the expanded tokenizer."""

    def text(self) -> str:
        """The README."""
        arguments = ["--model", self.model, "--with", self.general, "--weight", f"{self.weight:g}", "--out", "FOLDER"]
        return _CARD.format(
            front=front_matter(self.base),
            model=escaped(self.model),
            general=escaped(self.general),
            share=self.weight,
            rest=round(1 - self.weight, 6),
            sentences=SENTENCES if self.reads_sentences else "",
            command=fenced(f"greenadapt interpolate {shlex.join(arguments)}"),
            version=self.version,
        )
