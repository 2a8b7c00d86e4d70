"""The expand stage: a map, vectors and a model in, an adapted model folder out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from greenadapt import __version__
from greenadapt.checkpoints.layout import FACTS_FILE
from greenadapt.checkpoints.provenance import (
    base_id,
    check_model,
    copy_task,
    model_input,
    note_code,
    reads_sentences,
    task_input,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.checkpoints.writer import copy_side_files, write_expanded
from greenadapt.config import ExpandConfig
from greenadapt.corpus.occurring import words_in_files
from greenadapt.errors import InputError, MissingError
from greenadapt.report.adapted_card import AdaptedCard
from greenadapt.stages.align import vectors_of
from greenadapt.stages.session import ALIGN, EXPAND, Session, commands_of, model_of, require_same_model
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json, hash_file, write_json
from greenadapt.storage.names import short
from greenadapt.storage.results import Job, Outcome, Result, open_result, read_manifest, verified
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords, NewEntries, addable, new_entries, new_forms
from greenadapt.tokenization.base_vocabulary import BaseVocabulary
from greenadapt.tokenization.splitter import WordSplitter, load_tokenizer
from greenadapt.tokenization.writer import ExportReport, export_tokenizers
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.expansion import NewRows, replacements, select, wordpiece_norm
from greenadapt.vectors.word_vectors import VECTORS, WordVectors


def expand(
    session: Session, corpus: str | None, model: str | None, config: ExpandConfig, alignment: Path | None = None
) -> Result:
    """Add the mapped vectors of new words to the model, and write a folder that transformers loads."""
    if alignment is not None:
        aligned = open_result(alignment, ALIGN)
    else:
        name = session.corpus_name(corpus)
        aligned = session.find(name, session.model_name(name, model), ALIGN)
    chosen = model_of(aligned)
    name = aligned.manifest.facts["corpus"]
    check_expand(session, name, chosen, config)
    with session.locked(None if session.out else name, chosen.name):
        return run_expand(session, name, chosen, aligned, config)


def check_expand(session: Session, corpus: str, model: PretrainedModel, config: ExpandConfig) -> None:
    """Raise what the stage would raise about its files, or about what stands in its place, before any work."""
    for path in config.restrict_to:
        if not Path(path).is_file():
            raise MissingError(f"no file {path}", "give --restrict-to a text file")
    check_model(model, whole=True)
    session.check(session.place(corpus, model.name, EXPAND), EXPAND, asdict(config))


def run_expand(session: Session, corpus: str, model: PretrainedModel, aligned: Result, config: ExpandConfig) -> Result:
    """The stage itself; the caller holds the lock."""
    files = [Path(path) for path in config.restrict_to]
    inputs = {"alignment": aligned.as_input(), "model": model_input(model)}
    if (task := task_input(model.folder)) is not None:
        inputs["task"] = task
    inputs |= {f"text {path.name}": {"sha256": hash_file(path), "path": str(path)} for path in files}

    def build(work: Path) -> Outcome:
        require_same_model(aligned, inputs["model"])
        note_code(model, session.progress)
        vectors = vectors_of(verified(aligned))
        expansion = Expansion(model.folder, vectors, Alignment.load(aligned.folder), config)
        report = expansion.write(work)
        counts = {
            "words": len(expansion.entries.words),
            "rows": len(expansion.entries),
            "base_rows": expansion.checkpoint.n_rows,
            "overlap": aligned.manifest.counts["overlap"],
            "hidden_words": report.hidden_words,
        }
        facts = {name: aligned.manifest.facts[name] for name in ("corpus", "title", "licence", "model")}
        write_json(work / FACTS_FILE, {"greenadapt": __version__, **facts, "config": asdict(config), **counts})
        card = _card(session, aligned, work, config, counts, report)
        (work / "README.md").write_text(card.text(), "utf-8")
        return Outcome(counts, facts)

    return session.run(session.place(corpus, model.name, EXPAND), Job(EXPAND, asdict(config), inputs, build))


@dataclass(frozen=True, eq=False)
class Expansion:
    """A model in ``folder`` that is to know the words of ``vectors``, which ``alignment`` maps into its space."""

    folder: Path
    vectors: WordVectors
    alignment: Alignment
    config: ExpandConfig

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's weights."""
        return Checkpoint.open(self.folder)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, without truncation or padding."""
        return load_tokenizer(self.folder)

    @cached_property
    def vocabulary(self) -> BaseVocabulary:
        """The words that the model has a row for."""
        return BaseVocabulary(self.tokenizer)

    @cached_property
    def _forms(self) -> Array:
        return new_forms(self.vectors.words, self.tokenizer)

    @cached_property
    def chosen(self) -> Array:
        """Rows of ``vectors`` whose words get a row of their own, most frequent first, int64 ``(n_new,)``."""
        words = self.vectors.words
        known = {word for word, new in zip(words, addable(self._forms).tolist(), strict=True) if not new}
        allowed = None
        if self.config.restrict_to:
            allowed = words_in_files([Path(path) for path in self.config.restrict_to], WordSplitter(self.tokenizer))
        return select(words, self.vectors.counts, known, self.config, self._n_pieces, allowed)

    @cached_property
    def entries(self) -> NewEntries:
        """The new vocabulary strings, one a new row; raises ``InputError`` if there are none."""
        if not len(self.chosen):
            raise InputError(
                f"none of the {len(self.vectors.words):,} words gets a row (the model or the options leave them out)",
                "lower --min-count, --min-pieces, or use a larger corpus",
            )
        words = [self.vectors.words[row] for row in self.chosen.tolist()]
        return new_entries(words, self.tokenizer, self.config.oov, self._forms[self.chosen])

    def write(self, work: Path) -> ExportReport:
        """Write weights, configuration, both tokenizers and the table of added words into ``work``."""
        first_id = self.checkpoint.first_new_id(self.vocabulary.size)
        replaced = None
        if self.config.replace_all:
            replaced = replacements(self.vectors.words, self.vocabulary.whole_words, self._mapped)
        write_expanded(self.checkpoint, self._new_rows().streamed(), work, dtype=self.config.dtype, replaced=replaced)
        copy_side_files(self.folder, work)
        copy_task(self.folder, work)
        AddedWords.build(self.entries, self.vocabulary, first_id, self.config.oov).write(work / WORDS_FILE)
        return export_tokenizers(self.folder, work, self.entries, first_id, self.config.oov)

    def _new_rows(self) -> NewRows:
        surfaces, embedding = self.entries.surfaces(), self.checkpoint.embedding()
        rows = self.chosen[self.entries.word]
        norm = 0.0
        if self.config.rows == "norm":
            norm = wordpiece_norm(embedding, self.vocabulary.size, self.vocabulary.special_ids)
        return NewRows(
            len(rows),
            self.config,
            mapped=lambda block: self._mapped(rows[block]),
            pieces=lambda block: self.vocabulary.pieces(surfaces[block]),
            embedding=embedding,
            norm=norm,
        )

    def _mapped(self, rows: Array) -> Array:
        return self.alignment.apply(self.vectors.matrix[rows])

    def _n_pieces(self, words: Sequence[str]) -> list[int]:
        return [len(pieces) for pieces in self.vocabulary.pieces(words)]


def _card(
    session: Session,
    aligned: Result,
    work: Path,
    config: ExpandConfig,
    counts: Json,
    report: ExportReport,
) -> AdaptedCard:
    facts, imported = aligned.manifest.facts, (aligned.folder / VECTORS).is_file()
    model, made = short(facts["model"]["source"]), [aligned.manifest]
    if not imported:
        trained = read_manifest(Path(aligned.manifest.inputs["vectors"]["path"]))
        made = [read_manifest(Path(trained.inputs["corpus"]["path"])), trained, *made]
    return AdaptedCard(
        model=Path(model).name if Path(facts["model"]["source"]).is_absolute() else model,
        base=base_id(model_of(aligned)),
        commands=commands_of(session, *made),
        corpus=facts["title"],
        licence=facts["licence"],
        align=aligned.manifest.config,
        expand=asdict(config),
        counts=counts,
        heldout=facts["heldout"],
        hidden_words=report.hidden_words,
        changed_entries=len(report.changed_entries),
        imported=imported,
        reads_sentences=reads_sentences(work),
    )
