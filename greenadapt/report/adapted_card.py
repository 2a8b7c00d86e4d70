"""The README of an adapted model's folder."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from greenadapt.report.card_text import SENTENCES, escaped, fenced, front_matter, options_of
from greenadapt.report.map_quality import sentences
from greenadapt.storage.files import Json

_CARD = """{front}
# {model}, adapted to {title}

The model {model} with {rows:,} new embedding rows for {words:,} words of {what} *{title}*
(licence of the text: {licence}). The vectors of these words {origin} and mapped into the model's
wordpiece space ({method}, fitted on {overlap:,} words that both know; {recipe}),
as in Poerner et al., *Inexpensive Domain Adaptation of Pretrained Language Models* (arXiv 2004.03354). {old_rows}

```python
from transformers import AutoModel, AutoTokenizer

model, tokenizer = AutoModel.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
```

`base_tokenizer/` holds the model's own tokenizer. The paper averages what both give; one encoding gives both:

```python
from greenadapt.tokenization.dual_tokenizer import DualTokenizer

both = DualTokenizer.load(FOLDER).encode(TEXT)
```
{sentences}
## Made by

{command}

greenadapt {version}{heldout}{limits}
"""


_ROWS = {
    "map": "the mapped vectors are the new rows",
    "norm": "the mapped vectors, rescaled to the mean length of the model's rows, are the new rows",
    "pieces": "the new rows are the mean of the rows of each word's own pieces",
    "blend": "the new rows are a weighted mean of the mapped vector and the mean of the rows of the word's own pieces",
}


@dataclass(frozen=True)
class Card:
    """What a model card says."""

    model: str
    base: str | None
    """The hub's id of the pretrained model, where that is known."""
    title: str
    licence: str
    version: str
    command: str
    align: Json
    expand: Json
    counts: Json
    heldout: Json
    hidden_words: int
    changed_entries: int
    imported: bool = False
    """Whether the vectors were made elsewhere."""
    reads_sentences: bool = False
    """Whether ``sentence-transformers`` loads the model, and by the expanded tokenizer."""

    def text(self) -> str:
        """The card, in Markdown."""
        replaced = self.expand["replace_all"]
        return _CARD.format(
            front=front_matter(self.base),
            model=escaped(self.model),
            title=escaped(self.title),
            what="the vectors" if self.imported else "the corpus",
            origin="were made elsewhere" if self.imported else "were trained by CBOW word2vec",
            licence=escaped(self.licence),
            rows=self.counts["rows"],
            words=self.counts["words"],
            method=self.align["method"],
            overlap=self.counts["overlap"],
            recipe=_ROWS[self.expand["rows"]],
            old_rows="The rows of words that both know were replaced, too."
            if replaced
            else "The old rows and every other weight are unchanged.",
            sentences=SENTENCES if self.reads_sentences else "",
            command=fenced(self.command),
            version=self.version,
            heldout=self._heldout(),
            limits=self._limits(),
        )

    def _heldout(self) -> str:
        figures = self.heldout.get("figures")
        if not figures:
            return ""
        return f"\n\n{sentences(figures)}"

    def _limits(self) -> str:
        lines = []
        if self.hidden_words:
            lines.append(
                f"\n\n{self.hidden_words:,} of the words hold characters by which no added token of plain "
                "transformers\ncan be matched; only DualTokenizer finds these, and placeholders hold their ids."
            )
        if self.changed_entries:
            lines.append(
                f"\n\n{self.changed_entries:,} entries of the base vocabulary that its merges never reach are now "
                "found\nwhere they are a whole word; DualTokenizer leaves them out."
            )
        return "".join(lines)


@dataclass(frozen=True)
class Made:
    """A stage as it was run: its configuration, and its defaults."""

    stage: str
    config: Json
    default: Any

    def command(self, inputs: Sequence[str]) -> str:
        """The command line that gives this configuration to ``inputs``."""
        return shlex.join(["greenadapt", self.stage, *inputs, *options_of(self.config, self.default)])
