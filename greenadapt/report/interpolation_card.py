"""The README of a folder with a model between two others."""

from collections.abc import Sequence
from dataclasses import dataclass

from greenadapt.report.card_text import Card, escaped


@dataclass(frozen=True, kw_only=True)
class InterpolationCard(Card):
    """The card of an interpolated model; ``model`` is the domain model."""

    general: str
    weight: float
    """The share of ``general``."""

    @property
    def title(self) -> str:
        return f"{escaped(self.model)} and {escaped(self.general)}, interpolated"

    def parts(self) -> Sequence[str]:
        model, general = escaped(self.model), escaped(self.general)
        about = (
            f"Every weight of the encoder is {self.weight:g} times that of {general} and {round(1 - self.weight, 6):g} "
            f"times that of {model}; the rows of added\nwords, a head if there is one, and the tokenizers are those of "
            f"{model}."
        )
        return about, self.sentences
