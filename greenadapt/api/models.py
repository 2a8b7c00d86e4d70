"""Models in folders; encoders, adapted or not: tokenizations and neighbours."""

from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from greenadapt.api.arguments import shown_progress
from greenadapt.config import Count, ReadingOptions
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.fields import checked_call
from greenadapt.progress import Progress
from greenadapt.store.files import Json, expanded

if TYPE_CHECKING:
    from greenadapt.tokenization.dual_tokenizer import DualTokenizer
    from greenadapt.vectors.neighbours import Neighbours


class ModelFolder:
    """A folder that holds a model, with methods of the names that models of transformers have."""

    folder: Path
    """The model's folder, which transformers loads too."""

    def __fspath__(self) -> str:
        return str(self.folder)

    @classmethod
    def from_pretrained(
        cls, model: str | PathLike[str], task: str | None = None, reading: ReadingOptions = ReadingOptions()
    ) -> Self:
        """Open a model as ``greenadapt.load`` does, with the same arguments.

        Raises:
            MissingError: If there is no such model.
            InputError: If it is another kind of model.

        Examples:
            >>> model = greenadapt.EncoderModel.from_pretrained("minilm")
        """
        from greenadapt.api.calls import load

        opened = load(model, task, reading)
        if not isinstance(opened, cls):
            kind = type(opened).__name__
            raise InputError(f"{model} is no {cls.__name__}", f"open it with {kind}.from_pretrained")
        return opened

    @checked_call
    def save_pretrained(self, folder: str | PathLike[str]) -> Path:
        """Copy the model's files, all but hidden ones, to a new folder.

        Args:
            folder: A new or empty folder.

        Returns:
            The path of the copy.

        Raises:
            ConflictError: If the folder holds anything.

        Examples:
            >>> adapted.save_pretrained("models/medicine")
        """
        from greenadapt.checkpoints.source import find_model
        from greenadapt.corpus.opening import visible_files
        from greenadapt.store.outputs import copy_files

        source = find_model(str(self.folder)).folder
        return copy_files((path for path in visible_files(source) if not path.is_dir()), source, Path(folder))

    @checked_call
    def push_to_hub(
        self,
        repo: str,
        *,
        private: bool = False,
        progress: bool | Progress = True,
    ) -> str:
        """Upload the model to the Hugging Face hub, as ``greenadapt push`` does; this needs a token that may write.

        The manifest, predictions and logits of test sets, and hidden files stay here.

        Args:
            repo: The repository, as ``"OWNER/NAME"``; it is created if it is new.
            private: Whether to create a new repository as a private one.
            progress: Whether to show notes and bars on stderr, or where to.

        Returns:
            The address of the commit.

        Raises:
            UsageError: If the name of the repository is not one.
            InputError: If the folder is damaged.
            MissingError: If the address does not answer as a hub does.
            ConflictError: If the hub cannot be reached, or does not take the files.

        Examples:
            >>> adapted.push_to_hub("me/minilm-medicine", private=True)
        """
        from greenadapt.stages.push import push

        commit = push(self.folder, repo, shown_progress(progress), private=private, shows_bars=progress is True)
        return str(commit["url"])


class EncoderModel(ModelFolder):
    """An encoder in a folder; ``greenadapt.load`` opens one. Each part is read when it is first used.

    Examples:
        >>> model = greenadapt.load("minilm")
        >>> len(model.tokenizer.encode("tachycardia").base.ids)
        4
    """

    @checked_call
    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = expanded(folder).absolute()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @cached_property
    def tokenizer(self) -> "DualTokenizer":
        """Both tokenizations of a text, which are the same without added words.

        Examples:
            >>> encoded = adapted.tokenizer.encode("acute tachycardia")
            >>> len(encoded.base.ids), len(encoded.expanded.ids)
            (6, 2)
        """
        from greenadapt.checkpoints.reader import Checkpoint
        from greenadapt.tokenization.dual_tokenizer import DualTokenizer

        return DualTokenizer.of_model(self.folder, Checkpoint.open(self.folder).n_rows)


@dataclass(frozen=True)
class AlignmentQuality:
    """How well rows of the model's recipe predict those of held-out words; see ``HeldOut`` of
    ``greenadapt.vectors.quality``.
    """

    recipe: str
    """What the new rows are: ``--rows``."""
    n_heldout: int
    """Words that nothing was fitted on."""
    precision_at_1: float
    """Share of them whose own row is the nearest of all rows to the predicted one, by cosine."""
    precision_at_5: float
    """The same among the five nearest."""
    precision_at_10: float
    """The same among the ten nearest."""
    mrr: float
    """Mean reciprocal rank of the own row."""
    r2: float
    """Share of the variance that is explained."""
    cosine: float
    """Mean cosine of the predicted and the own row."""


class NeighbourList(list["Neighbours"]):
    """Neighbours of words in every view, each with ``word``, ``view`` and ``neighbours``, (label, cosine) pairs."""

    def __repr__(self) -> str:
        lines = []
        for entry in self:
            neighbours = ", ".join(f"{label} {cosine:.2f}" for label, cosine in entry.neighbours)
            lines.append(f"{entry.word}, {entry.view}: {neighbours}")
        return "\n".join(lines) or "[]"


class AdaptedModel(EncoderModel):
    """A model with rows for a domain's words, as ``greenadapt.adapt`` makes it.

    Examples:
        >>> adapted = greenadapt.load("adapted")
        >>> adapted
        AdaptedModel('adapted')
          BERT-base + 12,345 words of papers.txt
    """

    def __repr__(self) -> str:
        lines = [super().__repr__()]
        try:
            facts = self.facts
            lines.append(f"  {facts['model']['name']} with {facts['words']:,} words of {facts['title']}")
            quality = self.alignment
        except MissingError:
            return "\n".join(lines)
        figure = f"R² {quality.r2:.3f}" if quality.recipe == "map" else f"cosine {quality.cosine:.3f}"
        scores = f"precision@10 {quality.precision_at_10:.3f}, {figure}"
        return "\n".join([*lines, f"  --rows {quality.recipe} on {quality.n_heldout:,} held-out words: {scores}"])

    @cached_property
    def facts(self) -> Json:
        """How the model was adapted: ``corpus``, ``title``, ``licence``, ``model``, ``words``, ``rows``, ``config``.

        Raises:
            MissingError: If the folder does not hold an adapted model.
        """
        from greenadapt.checkpoints.provenance import read_facts

        facts = read_facts(self.folder)
        if facts is None:
            raise MissingError(f"{self.folder} is not an adapted model", "open it with greenadapt.load")
        return facts

    @property
    def corpus(self) -> str:
        """The name of the corpus in the workspace."""
        return str(self.facts["corpus"])

    @property
    def words(self) -> list[str]:
        """The added words."""
        return list(dict.fromkeys(self.tokenizer.added.all_surfaces()))

    @property
    def alignment(self) -> AlignmentQuality:
        """How well rows as the new ones are predict the rows of held-out words.

        Raises:
            MissingError: If there are no figures, since fewer than 50 words could be compared.

        Examples:
            >>> adapted.alignment.precision_at_10
            0.41
        """
        from greenadapt.store.results import read_manifest

        rows = read_manifest(self.folder).facts.get("rows") or {"recipe": None, "heldout": {}}  # of another stage
        figures = rows["heldout"].get(rows["recipe"])
        if figures is None:
            raise MissingError(f"{self.folder} has no figures of rows of held-out words", "use a larger corpus")
        values = {**figures, **figures["base_rows"]["cosine"], "recipe": rows["recipe"]}
        return AlignmentQuality(**{field.name: values[field.name] for field in fields(AlignmentQuality)})

    @checked_call
    def neighbours(self, *words: str, top: Count = 5, progress: bool | Progress = False) -> NeighbourList:
        """The added words and wordpieces whose rows are nearest, and the neighbours of the word vectors.

        Args:
            words: Words, as the model's tokenizer splits them.
            top: Number of neighbours of each word in each view.
            progress: Whether to warn on stderr of words that are unknown, if others are known.

        Returns:
            One entry for each word and view, as ``greenadapt neighbours`` prints them.

        Raises:
            UsageError: If there is no word.
            MissingError: If no word has a row or a vector.

        Examples:
            >>> adapted.neighbours("tachycardia", top=3)
        """
        from greenadapt.api.arguments import make_session
        from greenadapt.config import SessionOptions
        from greenadapt.stages.neighbours import neighbours

        if not words:
            raise UsageError("no word", "give one or more")
        session = make_session(SessionOptions(), progress)
        return NeighbourList(neighbours(session, None, str(self.folder), words, top))


def folder_of(model: Any) -> str:
    """A path, a hub id or a model of this API, as the stages read it."""
    if isinstance(model, PathLike):
        return str(Path(model))
    if isinstance(model, str):
        return model
    raise UsageError(f"model is of type {type(model).__name__}", "give a folder, a hub id or a model of greenadapt")
