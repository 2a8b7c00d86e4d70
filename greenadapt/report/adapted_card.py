"""The READMEs of models that were not trained: with new rows, or interpolated."""

from collections.abc import Sequence
from dataclasses import dataclass

from greenadapt.report.card_text import Card, escaped
from greenadapt.report.map_quality import MAP, recipes, sentences
from greenadapt.storage.files import Json

_ABOUT = """
The model {model} with {rows:,} new embedding rows for {words:,} words of {what} *{title}*
(licence of the text: {licence}). The vectors of these words {origin} and mapped into the model's
wordpiece space ({method}, fitted on {overlap:,} words that both know; {recipe}),
as in Poerner et al., *Inexpensive Domain Adaptation of Pretrained Language Models* (arXiv 2004.03354). {old_rows}
"""

_USE = """
```python
from transformers import AutoModel, AutoTokenizer

model, tokenizer = AutoModel.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
```

`base_tokenizer/` holds the model's own tokenizer. The paper averages what both give; one encoding gives both:

```python
from greenadapt.tokenization.dual_tokenizer import DualTokenizer

both = DualTokenizer.load(FOLDER).encode(TEXT)
```
"""

_USE_GENERATIVE = """
```python
from transformers import AutoModelForHEAD, AutoTokenizer

model, tokenizer = AutoModelForHEAD.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
```

`base_tokenizer/` holds the model's own tokenizer.
"""

_OUTPUT = "The model has output rows of its own; the new ones are by the same recipe, fitted on the old ones."

_ROWS = {
    "map": "the mapped vectors are the new rows",
    "norm": "the mapped vectors, rescaled to the mean length of the model's rows, are the new rows",
    "pieces": "the new rows are the mean of the rows of each word's own pieces",
    "form": "the new rows are a ridge regression on each word's vector, count and pieces",
    "blend": "the new rows are a weighted mean of the mapped vector and the mean of the rows of the word's own pieces",
}


@dataclass(frozen=True, kw_only=True)
class AdaptedCard(Card):
    """The card of a model with new rows for the words of a corpus."""

    corpus: str
    """Its title."""
    licence: str
    align: Json
    """The configuration of the stage."""
    expand: Json
    counts: Json
    rows: Json
    """The recipe of the new rows, and figures of recipes on held-out words."""
    imported: bool = False
    """Whether the vectors were made elsewhere."""
    head: str = ""
    """That of a generative language model, such as ``CausalLM``; empty for others."""
    has_output: bool = False
    """Whether it is a generative language model whose output rows are not those of its embedding."""

    @property
    def title(self) -> str:
        return f"{escaped(self.model)}, adapted to {escaped(self.corpus)}"

    def parts(self) -> Sequence[str]:
        about = _ABOUT.format(
            model=escaped(self.model),
            title=escaped(self.corpus),
            what="the vectors" if self.imported else "the corpus",
            origin="were made elsewhere" if self.imported else "were trained by CBOW word2vec",
            licence=escaped(self.licence),
            rows=self.counts["rows"],
            words=self.counts["words"],
            method=self.align["method"],
            overlap=self.counts["overlap"],
            recipe=_ROWS[self.rows["recipe"]],
            old_rows="The rows of words that both know were replaced, too."
            if self.expand["replace_all"]
            else "The old rows and every other weight are unchanged.",
        )
        return about, _USE_GENERATIVE.replace("HEAD", self.head) if self.head else _USE, self.sentences

    def notes(self) -> Sequence[str]:
        notes, figures = [], self.rows["heldout"].get(self.rows["recipe"])
        if figures is not None:
            notes.append(sentences(figures) if self.rows["recipe"] == MAP else recipes(self.rows))
        if self.has_output:
            notes.append(_OUTPUT)
        if hidden := self.counts["hidden_words"]:
            times = self.counts.get("hidden_occurrences")
            notes.append(
                f"{hidden:,} of the words{f', which occur {times:,} times in the corpus,' if times else ''} cannot be "
                "added tokens of plain\ntransformers, by their characters, or because pieces of others are spelled "
                "so; only DualTokenizer\nfinds these, and placeholders hold their ids."
            )
        if changed := self.counts["changed_entries"]:
            notes.append(
                f"{changed:,} entries of the base vocabulary that its merges never reach are now "
                "found\nwhere they are a whole word; DualTokenizer leaves them out."
            )
        return notes


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
