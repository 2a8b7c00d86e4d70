"""The expand stage: a map, vectors and a model in, an adapted model folder out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from greenadapt import __version__
from greenadapt.checkpoints.layout import FACTS_FILE
from greenadapt.checkpoints.provenance import (
    base_id,
    check_model,
    copy_task,
    licence_of,
    note_code,
    reads_sentences,
    task_input,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.checkpoints.writer import copy_side_files, write_expanded
from greenadapt.config import AlignConfig, ExpandConfig, RowRecipe
from greenadapt.corpus.lookup import words_in_files
from greenadapt.cost import total
from greenadapt.errors import ConflictError, InputError, MissingError
from greenadapt.report import map_quality
from greenadapt.report.cards import AdaptedCard
from greenadapt.report.map_quality import MAP
from greenadapt.stages.align import VectorSource, find_alignment, fitted_vectors, overlap
from greenadapt.stages.session import ALIGN, EXPAND, OpenedBase, Session, commands_of, model_of
from greenadapt.storage.arrays import Array, Streamed
from greenadapt.storage.files import Json, expanded, hash_file, short, write_json
from greenadapt.storage.jobs import Job, Outcome
from greenadapt.storage.results import Manifest, Result, found_at, open_result, read_manifest, result_behind, verified
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords, NewEntries, addable, new_entries, new_forms
from greenadapt.tokenization.export import ExportReport, export_tokenizers
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.vectors.alignment import Alignment, fit
from greenadapt.vectors.quality import MIN_OVERLAP, HeldOut, KnownWords, PredictedRows, has_counts, predict_rows
from greenadapt.vectors.rows import GATE, NewRows, Recipe, fit_form, replacements, select, wordpiece_norm
from greenadapt.vectors.word_vectors import VECTORS, WordVectors


def expand(
    session: Session, corpus: str | None, model: str | None, config: ExpandConfig, alignment: Path | None = None
) -> Result:
    """Add the mapped vectors of new words to the model, and write a folder that transformers loads."""
    aligned = find_alignment(session, corpus, model, alignment)
    chosen = model_of(aligned, model)
    name = aligned.manifest.facts["corpus"]
    check_expand(session, name, chosen, config)
    check_model(chosen, whole=True, generative=True)
    with session.locked(None if session.out else name, chosen.name):
        return run_expand(session, name, OpenedBase(chosen), aligned, fitted_vectors(aligned), config)


def alignment_of(folder: Path) -> Result:
    """The map that the adapted model in ``folder`` was made with, and the word vectors that it maps lie near.

    Raises ``MissingError`` if the model was not made by ``expand``, or the map is not where it was or was made again.
    """
    entry = read_manifest(folder.resolve()).inputs.get("alignment")
    if entry is None:
        raise MissingError(f"{folder} does not say which map it was made with", "give the folder of an expand result")
    found = found_at(entry, folder)
    if not found.is_dir():
        raise MissingError(f"the map of {folder} is no longer in {entry['path']}", "adapt the model again")
    aligned = open_result(found, ALIGN)
    if aligned.manifest.digest != entry["sha256"]:
        raise MissingError(f"{found} was made again since {folder} was", "adapt the model again")
    return aligned


def check_expand(session: Session, corpus: str, model: PretrainedModel, config: ExpandConfig) -> None:
    """Raise what the stage would raise about its files or an existing result, before any work."""
    for path in config.restrict_to:
        if not Path(path).is_file():
            raise MissingError(f"no file {path}", "give --restrict-to a text file")
    place = session.place(corpus, model.name, EXPAND)
    session.check(place, EXPAND, asdict(config))
    current = place.current()
    if current is not None and not session.force and current.manifest.facts.get("corpus") != corpus:
        raise ConflictError(
            f"{place.path} was made from another corpus ({current.manifest.facts.get('corpus')} → {corpus})",
            "keep both with another --out, or replace it with --force",
        )


def run_expand(
    session: Session, corpus: str, base: OpenedBase, aligned: Result, source: VectorSource, config: ExpandConfig
) -> Result:
    """The stage itself; the caller holds the lock."""
    model = base.model
    files = [expanded(path).absolute() for path in config.restrict_to]
    inputs = {"alignment": aligned.as_input(), "model": base.entry}
    if (task := task_input(model.folder)) is not None:
        inputs["task"] = task
    for i, path in enumerate(files):
        alike = any(path.name == other.name for other in files[:i])
        inputs[f"text {i + 1} {path.name}" if alike else f"text {path.name}"] = {
            "sha256": hash_file(path),
            "path": str(path),
        }

    place = session.place(corpus, model.name, EXPAND)
    former = place.current()

    def build(work: Path) -> Outcome:
        base.require_unchanged(aligned)
        note_code(model, session.progress)
        fitting = AlignConfig(**aligned.manifest.config)
        expansion = Expansion(base, source.vectors, Alignment.load(verified(aligned).folder), config, fitting)
        recipe = expansion.recipe.config.rows
        if base.checkpoint.architecture.is_generative and recipe in ("map", "norm", "blend"):
            session.progress.warn(
                f"rows by --rows {recipe} can spoil all predictions of a generative language model; "
                "use --rows form or --rows pieces"
            )
        report = expansion.write(work)
        counts = {
            "words": len(expansion.entries.words),
            "rows": len(expansion.entries),
            "base_rows": base.checkpoint.n_rows,
            "overlap": aligned.manifest.counts["overlap"],
            "hidden_words": report.hidden_words,
            "hidden_occurrences": expansion.hidden_occurrences,
            "changed_entries": len(report.changed_entries),
        }
        facts = {name: aligned.manifest.facts[name] for name in ("corpus", "title", "licence", "model")}
        figures: Json = {name: asdict(each) for name, each in expansion.figures.items()}
        if recipe == MAP and (of_map := aligned.manifest.facts["heldout"]["figures"]):
            figures = {MAP: of_map}
        facts["rows"] = {"recipe": recipe, "heldout": figures}
        if fitting.method != "random" or not expansion.recipe.needs_map:
            _warn(session, facts["rows"], None if former is None else former.manifest.facts.get("rows"))
        write_json(work / FACTS_FILE, {"greenadapt": __version__, **facts, "config": asdict(config), **counts})
        return Outcome(counts, facts)

    def card(work: Path, outcome: Outcome, cost: Json) -> str:
        return _card(session, aligned, work, config, outcome, cost).text()

    return session.run(place, Job(EXPAND, asdict(config), inputs, build, card=card))


def _warn(session: Session, rows: Json, former: Json | None) -> None:
    """Warn if the rows predict nothing; a note where those before them did neither, since updates run every night."""
    if said := map_quality.warning(rows["heldout"].get(rows["recipe"]), rows["recipe"]):
        was = former is not None and map_quality.warning(former["heldout"].get(former["recipe"]), former["recipe"])
        (session.progress.note if was else session.progress.warn)(said)


AUTO_RECIPES: tuple[RowRecipe, ...] = ("norm", "pieces", "form")
"""What ``--rows auto`` chooses from."""


@dataclass(frozen=True, eq=False)
class Expansion:
    """A model to be given rows for the words of ``vectors``, mapped into its space by ``alignment``."""

    base: OpenedBase
    vectors: WordVectors
    alignment: Alignment
    config: ExpandConfig
    fitting: AlignConfig = AlignConfig()  # noqa: RUF009  (it is frozen)
    """How the alignment was fitted and which words were held out."""
    is_output: bool = False
    """Whether the rows are output rows of a generative language model, which differ from those of its embedding."""

    @cached_property
    def output(self) -> "Expansion | None":
        """The same words' output rows, if the model has its own: by the same recipe, fitted on output rows.

        A word's output row is what a state is compared with to predict the word, and not the row that the word itself
        is read by; it depends on the word's contexts, too.
        """
        output = self.base.checkpoint.untied_output()
        if output is None:
            return None
        words, rows, ids = overlap(self.vectors, self.base.vocabulary)
        alignment = fit(self.vectors.matrix[rows], np.asarray(output[ids], np.float32), self.fitting, words)
        config = replace(self.config, rows=self.recipe.config.rows)
        return replace(self, alignment=alignment, config=config, is_output=True)

    @property
    def table(self) -> Array:
        """The rows that the new ones come below, (n_rows, dim)."""
        output = self.base.checkpoint.untied_output() if self.is_output else None
        return self.base.checkpoint.embedding() if output is None else output

    @cached_property
    def recipe(self) -> Recipe:
        """What the new rows are; with ``--rows auto`` the recipe whose rows are nearest to those of held-out words."""
        if self.config.rows != "auto":
            name = self.config.rows
        else:
            name = max(self.figures, key=lambda name: self.figures[name].cosine)
        recipe = replace(self.blank, config=replace(self.config, rows=name))
        if name != "form":
            return recipe
        known = self.known
        if len(known.rows) < MIN_OVERLAP:
            raise InputError(
                f"--rows form is fitted on words that could be spelled without their row: there are {len(known.rows)}, "
                f"{MIN_OVERLAP} are needed",
                "use a larger corpus, or --rows norm",
            )
        rows = known.base[known.rows]
        return replace(recipe, form=fit_form(known.vectors, known.counts, known.pieces, known.base, rows, recipe.norm))

    @cached_property
    def figures(self) -> dict[RowRecipe, HeldOut]:
        """Of the recipes to choose from, or of the one given, on held-out words; empty for the mapped vectors, which
        ``align`` measured.

        Raises ``InputError`` if the words are too few to choose by.
        """
        if self.config.rows == MAP:
            return {}
        names: tuple[RowRecipe, ...] = AUTO_RECIPES if self.config.rows == "auto" else (self.config.rows,)
        if self.config.rows != "auto" and len(self.known.rows) < MIN_OVERLAP:
            return {}
        return self.predicted(names).figures()

    def predicted(self, names: Sequence[RowRecipe]) -> PredictedRows:
        """Rows of held-out words by these recipes; raises ``InputError`` if the words are too few."""
        return predict_rows(self.known, self.blank, names, self.fitting)

    @cached_property
    def blank(self) -> Recipe:
        """A recipe without its name."""
        embedding, vocabulary = self.table, self.base.vocabulary
        norm = wordpiece_norm(embedding, vocabulary.size, vocabulary.special_ids)
        rescales_form = not self.base.checkpoint.architecture.is_generative
        return Recipe(self.config, self.alignment, embedding, norm, rescales_form=rescales_form)

    @cached_property
    def known(self) -> KnownWords:
        """The overlapping words that the model could spell without their rows."""
        vocabulary = self.base.vocabulary
        words, rows, ids = overlap(self.vectors, vocabulary)
        pieces = vocabulary.pieces_without_row(words)
        kept = np.array([i for i, own in enumerate(pieces) if own], np.int64)
        return KnownWords(
            np.asarray(self.vectors.matrix[rows[kept]], np.float32),
            self._weighed.counts[rows[kept]],
            ids[kept],
            self.table[: vocabulary.size],
            [pieces[i] for i in kept.tolist()],
            vocabulary.special_ids,
            [words[i] for i in kept.tolist()],
        )

    @cached_property
    def _weighed(self) -> WordVectors:
        """The vectors; if they came without counts, with those at which contexts count as much as form."""
        counts = self.vectors.counts
        return self.vectors if has_counts(counts) else replace(self.vectors, counts=np.full_like(counts, GATE))

    @cached_property
    def _forms(self) -> Array:
        return new_forms(self.vectors.words, self.base.vocabulary)

    @cached_property
    def chosen(self) -> Array:
        """Rows of ``vectors`` whose words get a row of their own, most frequent first, int64 ``(n_new,)``."""
        words = self.vectors.words
        known = {word for word, new in zip(words, addable(self._forms).tolist(), strict=True) if not new}
        allowed = None
        if self.config.restrict_to:
            allowed = words_in_files(
                [Path(path) for path in self.config.restrict_to], WordSplitter(self.base.tokenizer)
            )
        return select(words, self.vectors.counts, known, self.config, self.base.vocabulary, allowed)

    @cached_property
    def entries(self) -> NewEntries:
        """The new vocabulary strings, one per new row; raises ``InputError`` if there are none."""
        if not len(self.chosen):
            raise InputError(
                f"none of the {len(self.vectors.words):,} words gets a row (the model or the options exclude them)",
                "lower --min-count, --min-pieces, or use a larger corpus",
            )
        words = [self.vectors.words[row] for row in self.chosen.tolist()]
        return new_entries(words, self.base.vocabulary, self.config.oov, self._forms[self.chosen])

    @property
    def hidden_occurrences(self) -> int:
        """How often words that only DualTokenizer finds occur in the corpus; 0 for vectors without counts."""
        counts = self.vectors.counts
        hidden = np.unique(self.entries.word[~self.entries.exported])
        return int(counts[self.chosen[hidden]].sum()) if has_counts(counts) else 0

    def write(self, work: Path) -> ExportReport:
        """Write weights, configuration, both tokenizers and the table of added words into ``work``."""
        folder, checkpoint, vocabulary = self.base.model.folder, self.base.checkpoint, self.base.vocabulary
        first_id = checkpoint.first_new_id(vocabulary.size)
        replaced = None
        if self.config.replace_all:
            replaced = replacements(self.vectors, vocabulary.whole_words, self.alignment)
        output = None if self.output is None else self._rows(self.output.recipe)
        write_expanded(
            checkpoint, self._rows(self.recipe), work, dtype=self.config.dtype, replaced=replaced, output_rows=output
        )
        copy_side_files(folder, work)
        copy_task(folder, work)
        AddedWords.build(self.entries, vocabulary, first_id, self.config.oov).write(work / WORDS_FILE)
        entries, rule, is_generative = self.entries, self.config.oov, checkpoint.architecture.is_generative
        return export_tokenizers(vocabulary, folder, work, entries, first_id, rule, is_generative=is_generative)

    def _rows(self, recipe: Recipe) -> Streamed:
        surfaces, rows = self.entries.surfaces(), self.chosen[self.entries.word]
        return NewRows(surfaces, rows, self._weighed, self.base.vocabulary, recipe).streamed()


def _made_before(aligned: Result) -> list[Manifest]:
    """The manifests of corpus and word vectors of a map, as far as they are still there."""
    made: list[Manifest] = []
    manifest, place = aligned.manifest, aligned.path
    for name in ("vectors", "corpus"):
        found = result_behind(manifest.inputs[name], place)
        if found is None:
            break
        manifest, place = read_manifest(found), found
        made.insert(0, manifest)
    return made


def _card(
    session: Session, aligned: Result, work: Path, config: ExpandConfig, outcome: Outcome, cost: Json
) -> AdaptedCard:
    imported = (aligned.folder / VECTORS).is_file()
    facts = outcome.facts
    checkpoint = Checkpoint.open(work, generative=True)
    model, made = short(facts["model"]["source"]), [] if imported else _made_before(aligned)
    made.append(aligned.manifest)
    return AdaptedCard(
        model=Path(model).name if Path(facts["model"]["source"]).is_absolute() else model,
        base=base_id(model_of(aligned)),
        licence_of_base=licence_of(model_of(aligned)),
        commands=commands_of(session, *made),
        corpus=facts["title"],
        licence=facts["licence"],
        align=aligned.manifest.config,
        expand=asdict(config),
        counts=outcome.counts,
        rows=facts["rows"],
        imported=imported,
        head=checkpoint.architecture.heads[0] if checkpoint.architecture.is_generative else "",
        has_output=checkpoint.untied_output() is not None,
        reads_sentences=reads_sentences(work),
        cost=total([*(manifest.whole_cost for manifest in made), cost]).as_dict(),
    )
