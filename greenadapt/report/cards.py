"""The READMEs of models: template, front matter and Markdown, and the cards of adapted and pre-trained models."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar

from greenadapt import __version__
from greenadapt.corpus.opening import hub_data_set
from greenadapt.errors import harmless, one_line
from greenadapt.report.map_quality import MAP, recipes, sentences
from greenadapt.report.tables import VIEW_NAMES, Table, loss_tables
from greenadapt.storage.files import Json, short

_SENTENCES = """
`sentence-transformers` reads this folder by the expanded tokenizer alone. In greenadapt's test of search, embeddings of
an adapted model that was not trained further found less than the base model's, even as the mean of both tokenizations.
Fine-tune the model, or keep the base model for search.
"""


_MADE_BY = "## Made by"

# Marks of Markdown; an underscore within a word is none.
_MARKS = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")


@dataclass(frozen=True)
class Measured:
    """A score on a set of examples, as the hub lists it."""

    pipeline: str
    """The hub's name of the task."""
    source: str
    """The file or data set."""
    metric: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Card(ABC):
    """The README of a model's folder."""

    model: str
    """The model that was adapted or trained, by name or hub id."""
    base: str | None = None
    """The hub's id of the pretrained model, if known."""
    licence_of_base: Json | None = None
    """The entries of the pretrained model's card that state its licence, if known."""
    commands: Sequence[str] = ()
    """The command lines that it was made by; none if it was made from Python."""
    is_expanded: bool = True
    """Whether the model has added words."""
    reads_sentences: bool = False
    """Whether ``sentence-transformers`` loads the model, and by the expanded tokenizer."""
    cost: Json | None = None
    """A ``Cost``, as JSON."""

    tags: ClassVar[Sequence[str]] = ()
    closing: ClassVar[str] = ""
    """Further files, named after version and cost."""

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def parts(self) -> Sequence[str]:
        """The paragraphs and sections between the title and how it was made."""

    def front(self) -> str:
        """The YAML at the top."""
        return front_matter(
            self.base,
            self.model,
            library=self.library,
            pipeline=self.pipeline,
            tags=["greenadapt", "domain-adaptation", *self.tags],
            datasets=sorted(filter(None, map(hub_data_set, self.data()))) or None,
            measured=self.measured(),
            co2_eq_emissions=None if self.cost is None else _emissions(self.cost, self.training),
            **(self.licence_of_base or {}),
        )

    @property
    def pipeline(self) -> str | None:
        """The hub's name of what the model does: not sentence similarity, which ``sentences`` warns of."""
        return "feature-extraction" if self.reads_sentences else None

    @property
    def library(self) -> str:
        """The hub's name of the library that loads the folder."""
        return "sentence-transformers" if self.reads_sentences else "transformers"

    @property
    def training(self) -> str | None:
        """What the hub calls the training that the cost is of."""
        return None

    def data(self) -> Iterable[str]:
        """The files or data sets of the labels."""
        return ()

    def measured(self) -> Sequence[Measured]:
        """The main scores."""
        return ()

    @property
    def sentences(self) -> str:
        """A warning for sentence models with added words."""
        return _SENTENCES if self.reads_sentences else ""

    @property
    def tokenizer(self) -> str:
        """Python that names the folder of the model's own tokenizer."""
        return 'f"{FOLDER}/base_tokenizer"' if self.is_expanded else "FOLDER"

    def notes(self) -> Sequence[str]:
        """Paragraphs at the end."""
        return ()

    def text(self) -> str:
        """The card, in Markdown."""
        command = fenced("\n".join(self.commands)) if self.commands else ""
        made = f"greenadapt {__version__}" + ("" if self.cost is None else f"; {spent(self.cost)}") + self.closing
        parts = [self.front(), f"# {self.title}", *self.parts(), _MADE_BY, command, made, *self.notes()]
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def front_matter(
    base: str | None, name: str, *, library: str = "transformers", measured: Sequence[Measured] = (), **entries: Any
) -> str:
    """The YAML at the top of a card, with ``base``, the hub's id of the pretrained model, if known.

    ``name`` is the model's in the list of its scores. ``entries`` are those of ``huggingface_hub.ModelCardData``.
    """
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type=one.pipeline,
            dataset_type=hub_data_set(one.source) or short(one.source),
            dataset_name=short(one.source),
            metric_type=one.metric,
            metric_value=round(one.value, 4),
        )
        for one in measured
    ]
    pipeline = entries.pop("pipeline", None)
    scores: dict[str, Any] = {"eval_results": results, "model_name": name} if results else {}
    data = ModelCardData(base_model=base, library_name=library, pipeline_tag=pipeline, **entries, **scores)
    return f"---\n{data.to_yaml()}\n---\n"


def _emissions(cost: Json, training: str | None) -> Json:
    """As the hub reads it: ``emissions`` is grams of CO₂-equivalent."""
    source = f"greenadapt; energy: {cost['energy_source']}; carbon: {cost['co2_source']}"
    of_training = {} if training is None else {"training_type": training}
    return {"emissions": float(f"{1000 * cost['co2_kg']:.3g}"), "source": source, **of_training}


def escaped(text: str) -> str:
    """``text`` in one line, of which nothing is read as Markdown or HTML."""
    return _MARKS.sub(r"\\\g<0>", escape(" ".join(one_line(text).split()), quote=False))


def code(text: str) -> str:
    """``text`` in one line, as code within a line."""
    text = " ".join(one_line(text).split())
    fence = "`" * (1 + _longest_run(text))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def fenced(text: str) -> str:
    """A block of shell commands."""
    text = harmless(text)
    fence = "`" * max(3, 1 + _longest_run(text))
    return f"{fence}sh\n{text}\n{fence}"


def section(table: Table, n_left: int = 1) -> str:
    """A heading and a table, of whose columns the first ``n_left`` hold text, the others numbers."""
    lines = [table.columns, ["---"] * n_left + ["---:"] * (len(table.columns) - n_left), *table.rows]
    drawn = "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in lines)
    return f"\n## {escaped(table.title[:1].upper() + table.title[1:])}\n\n{drawn}\n"


def with_pictures(card: str, pictures: Mapping[str, tuple[str, str]]) -> str:
    """``card`` with ``pictures``, by file the title and what the picture shows, before how the model was made.

    Those that the card has already are not added.
    """
    shown = [
        f"**{escaped(title)}**\n\n![{escaped(what)}]({file})"
        for file, (title, what) in pictures.items()
        if f"({file})" not in card
    ]
    if not shown:
        return card
    before, made_by, after = card.partition(_MADE_BY)
    return "\n\n".join([before.rstrip(), "## Plots", *shown]) + f"\n\n{made_by}{after}".rstrip() + "\n"


def spent(cost: Json) -> str:
    """What a ``Cost``, as JSON, took: its seconds, its energy in watt-hours, and where that is from."""
    return f"{cost['seconds']:,.0f} seconds, {1000 * cost['energy_kwh']:.3g} Wh ({cost['energy_source']})"


def _longest_run(text: str) -> int:
    """The most backticks in a row."""
    return max(map(len, re.findall("`+", text)), default=0)


_MIX = {
    "sample": "each example in a tokenization drawn at random in every epoch",
    "fixed": "each example in a tokenization drawn at random once",
    "batch": "each batch in a tokenization drawn at random",
    "both": "each example in both tokenizations",
    "base": "the base tokenization alone",
    "expanded": "the expanded tokenization alone",
}


_INPUTS = {"ner": "text.txt.gz", "classification": "texts.txt", "qa": "questions.jsonl"}


def reads_text(model: str, config: Json, *, is_expanded: bool) -> str:
    """The tokenizations of the training, and whose logits decide: ``mix``, ``agreement`` and ``pool`` of ``config``."""
    if not is_expanded:
        return f"The model {escaped(model)} has no added words: it was trained with its own tokenizer.\n"
    agreement = ""
    if config.get("agreement"):
        agreement = (
            f", with {config['agreement']:g} times the divergence between both predictions in the loss\n"
            "(Wang et al., *Multi-view Subword Regularization*, arXiv 2103.08490)"
        )
    taught = ""
    if "unlabelled_batch" in config:
        taught = (
            f"Besides, {config['unlabelled_batch']} texts without labels a step taught each tokenization what both "
            "predict\ntogether (Clark et al., *Semi-Supervised Sequence Modeling with Cross-View Training*, arXiv "
            "1809.08370),\nwith "
            f"weight {config['unlabelled_weight']:g}, once a fifth of the steps were made.\n"
        )
    return (
        f"It was trained on {_MIX[config['mix']]}{agreement}, and its logits are those of "
        f"{VIEW_NAMES[config['pool']]},\nas in Poerner et al., *Inexpensive Domain Adaptation of Pretrained "
        f"Language Models* (arXiv 2004.03354).\n{taught}`base_tokenizer/` holds the model's own tokenizer, the folder "
        "itself the expanded one.\n"
    )


def memory_text(memory: Json | None) -> str:
    """What the model has as its memory, by the settings that ``task.json`` has of it."""
    if memory is None:
        return ""
    general = f"{escaped(memory['general']['name'])} (SHA-256 {memory['general']['sha256'][:12]}…)"
    if memory["strategy"] == "logits":
        does = f"The logits that its head gives for the states of the general model {general} are added to its own"
    else:
        does = f"It sees the states of the general model {general} as memory, strategy `{memory['strategy']}`"
    needs = (
        "stayed as it was and is needed beside this folder"
        if memory["frozen"]
        else "was trained, too, and lies in `memory/`"
    )
    return (
        f"\n{does}, as in Wan et al., *G-MAP: General Memory-Augmented Pre-trained Language Model for Domain\n"
        f"Tasks* (arXiv 2212.03613). That model {needs}; plain transformers loads this one without it.\n"
    )


def example_file(task: Json) -> str:
    """What a file that ``task`` (its ``settings()``) predicts on may be called."""
    return "pairs.jsonl" if len(task.get("text_fields", ())) == 2 else _INPUTS[task["task"]]


_ABOUT_ADAPTED = """
The model {model} with {rows:,} new embedding rows for {words:,} words of {what} *{title}*
(licence of the text: {licence}). The vectors of these words {origin} and mapped into the model's
wordpiece space ({method}, fitted on {overlap:,} words that both know; {recipe}),
as in Poerner et al., *Inexpensive Domain Adaptation of Pretrained Language Models* (arXiv 2004.03354). {old_rows}
"""

_USE_ADAPTED = """
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
        about = _ABOUT_ADAPTED.format(
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
        return about, _USE_GENERATIVE.replace("HEAD", self.head) if self.head else _USE_ADAPTED, self.sentences

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


_ABOUT_PRETRAINED = """
The model {model}, trained further as a masked language model ({share:.0%} of the {unit}, {trained}) on {documents:,}
documents of {texts}, {pieces:,} pieces.{tokenizations}{head}{memory}
"""

_USE_PRETRAINED = """
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
        about = _ABOUT_PRETRAINED.format(
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
        return about, self.sentences, *losses, _USE_PRETRAINED.format(tokenizer=self.tokenizer)

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
