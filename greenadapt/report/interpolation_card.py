"""The README of a folder with a model between two others."""

import shlex
from dataclasses import dataclass

_CARD = """---
base_model: {model}
library_name: transformers
tags:
- greenadapt
- domain-adaptation
---

# {model} and {general}, interpolated

Every weight of the encoder is {share:g} times that of {general} and {rest:g} times that of {model}; the rows of added
words, a head where there is one, and the tokenizers are those of {model}.

## Made by

```sh
{command}
```

greenadapt {version}
"""


@dataclass(frozen=True)
class InterpolationCard:
    """What the card of an interpolated model tells."""

    model: str
    general: str
    weight: float
    """The share of ``general``."""
    version: str

    def text(self) -> str:
        """The README."""
        arguments = ["--model", self.model, "--with", self.general, "--weight", f"{self.weight:g}", "--out", "FOLDER"]
        return _CARD.format(
            model=self.model,
            general=self.general,
            share=self.weight,
            rest=round(1 - self.weight, 6),
            command=f"greenadapt interpolate {shlex.join(arguments)}",
            version=self.version,
        )
