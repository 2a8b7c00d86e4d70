"""The expand stage: a map, vectors and a model in, an adapted model folder out."""

from collections.abc import Collection
from dataclasses import asdict
from functools import partial
from pathlib import Path

from greenadapt import __version__
from greenadapt.checkpoints.layout import FACTS_FILE
from greenadapt.checkpoints.provenance import check_model, copy_task, note_code, reads_sentences, task_input
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.checkpoints.writer import copy_side_files, write_expanded
from greenadapt.config import AlignConfig, ExpandConfig
from greenadapt.corpus.prepared import VOCABULARY_FILE, read_vocabulary
from greenadapt.cost import total
from greenadapt.errors import ConflictError, MissingError
from greenadapt.progress import Progress
from greenadapt.report.cards import AdaptedCard
from greenadapt.report.tables import MAP, rows_warning
from greenadapt.stages.align import VectorSource, find_alignment, fitted_vectors
from greenadapt.stages.session import ALIGN, EXPAND, OpenedBase, Session, card_origin, model_of, unnamed
from greenadapt.storage.files import Json, expanded, hash_file, short, write_json
from greenadapt.storage.jobs import Job, Outcome
from greenadapt.storage.results import Result, found_at, open_result, read_manifest, result_behind, verified
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.export import ExportReport, export_tokenizers
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.quality import MIN_OVERLAP
from greenadapt.vectors.rows import Expansion, replacements

N_COUNTED = 200_000
"""The number of a text's most frequent words whose pieces are counted."""


def expand(
    session: Session,
    corpus: str | None,
    model: str | None,
    config: ExpandConfig,
    alignment: Path | None = None,
    named: Collection[str] | None = None,
) -> Result:
    """Add rows for new words to the model, and write a folder that transformers loads; for ``named`` see
    ``check_expand``.
    """
    aligned = find_alignment(session, corpus, model, alignment)
    chosen = model_of(aligned, model)
    name = aligned.manifest.facts["corpus"]
    config = check_expand(session, name, chosen, config, named)
    check_model(chosen, whole=True)
    with session.locked(None if session.out else name, chosen.name):
        return run_expand(session, name, OpenedBase(chosen), aligned, fitted_vectors(aligned), config)


def alignment_of(folder: Path) -> Result:
    """The map of the adapted model in ``folder``.

    Raises ``MissingError`` if the model is not a result of ``expand``, or the map was removed or fitted again.
    """
    entry = read_manifest(folder.resolve()).inputs.get("alignment")
    if entry is None:
        raise MissingError(f"the manifest of {folder} names no map", "give the folder of an expand result")
    path = found_at(entry, folder)
    if not path.is_dir():
        raise MissingError(f"the map of {folder} is no longer in {entry['path']}", "adapt the model again")
    aligned = open_result(path, ALIGN)
    if aligned.manifest.digest != entry["sha256"]:
        raise MissingError(f"{path} was made again since {folder} was", "adapt the model again")
    return aligned


def check_expand(
    session: Session, corpus: str, model: PretrainedModel, config: ExpandConfig, named: Collection[str] | None = None
) -> ExpandConfig:
    """Raise the errors of the stage about its files or an existing result, before any work.

    Fields of ``config`` that are not ``named`` take the values of the existing result; ``None`` means that all are.
    """
    for path in config.restrict_to:
        if not Path(path).is_file():
            raise MissingError(f"no file {path}", "give --restrict-to a text file")
    place = session.place(corpus, model.name, EXPAND)
    config = session.kept_settings(place, EXPAND, config, unnamed(config, named))
    session.check(place, EXPAND, asdict(config))
    current = place.current()
    if current is not None and not session.force and current.manifest.facts.get("corpus") != corpus:
        raise ConflictError(
            f"{place.path} was made from another corpus ({current.manifest.facts.get('corpus')} → {corpus})",
            "keep both with another --out, or replace it with --force",
        )
    return config


def run_expand(
    session: Session, corpus: str, base: OpenedBase, aligned: Result, source: VectorSource, config: ExpandConfig
) -> Result:
    """The stage itself; the caller holds the lock."""
    model = base.model
    place = session.place(corpus, model.name, EXPAND)
    current = place.current()

    def build(work: Path) -> Outcome:
        base.require_unchanged(aligned)
        note_code(model, session.progress)
        fitting = AlignConfig(**aligned.manifest.config)
        alignment = Alignment.load(verified(aligned).folder)
        expansion = Expansion(base.checkpoint, base.vocabulary, source.vectors, alignment, config, fitting)
        recipe = expansion.recipe
        _warn_about_recipe(expansion, session.progress)
        report = write_adapted(expansion, work)
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
        figures: Json = {name: asdict(heldout) for name, heldout in expansion.heldout_figures.items()}
        if recipe.name == MAP and (map_figures := aligned.manifest.facts["heldout"]["figures"]):
            figures = {MAP: map_figures}
        facts["rows"] = {"recipe": recipe.name, "heldout": figures}
        facts["pieces_per_word"] = _pieces_per_word(aligned, work)
        if fitting.method != "random" or not recipe.needs_map:
            session.warn_or_note(_warning, facts, current)
        write_json(work / FACTS_FILE, {"greenadapt": __version__, **facts, "config": asdict(config), **counts})
        return Outcome(counts, facts)

    card = partial(_card, session, aligned, config)
    return session.run(place, Job(EXPAND, asdict(config), _inputs(base, aligned, config), build, card=card))


def _inputs(base: OpenedBase, aligned: Result, config: ExpandConfig) -> dict[str, Json]:
    """What the result is made from, by name."""
    inputs = {"alignment": aligned.as_input(), "model": base.entry}
    if (task := task_input(base.model.folder)) is not None:
        inputs["task"] = task
    for number, path in enumerate((expanded(path).absolute() for path in config.restrict_to), 1):
        name = f"text {path.name}"
        name = f"text {number} {path.name}" if name in inputs else name
        inputs[name] = {"sha256": hash_file(path), "path": str(path)}
    return inputs


def _warn_about_recipe(expansion: Expansion, progress: Progress) -> None:
    """Warn if the rows are not by the recipe that was asked for."""
    recipe = expansion.recipe
    if recipe.name != expansion.config.rows and expansion.config.rows == "form":
        n_known = len(expansion.overlap_with_pieces.rows)
        progress.warn(
            f"rows from form need {MIN_OVERLAP} known words that can be spelled in pieces, and the text has "
            f"{n_known}: the new rows are the mean of the words' pieces; use more text"
        )


def _warning(facts: Json) -> str:
    """A warning if rows predict nothing."""
    rows: Json = facts["rows"]
    return rows_warning(rows["heldout"].get(rows["recipe"]), rows["recipe"])


def write_adapted(expansion: Expansion, work: Path) -> ExportReport:
    """Write weights, configuration, both tokenizers and the table of added words into ``work``."""
    checkpoint, vocabulary, config = expansion.checkpoint, expansion.vocabulary, expansion.config
    folder, entries = checkpoint.folder, expansion.entries
    first_id = checkpoint.first_new_id(vocabulary.size)
    replaced = None
    if config.replace_all:
        replaced = replacements(expansion.vectors, vocabulary.whole_words, expansion.alignment)
    write_expanded(checkpoint, expansion.rows(), work, replaced=replaced)
    copy_side_files(folder, work)
    copy_task(folder, work)
    AddedWords.build(entries, vocabulary, first_id, config.oov).write(work / WORDS_FILE)
    return export_tokenizers(vocabulary, folder, work, entries, first_id, config.oov)


def _folders_behind(aligned: Result) -> list[Path]:
    """The folders of corpus, word vectors and map, without removed results and those before them."""
    folders = [aligned.path]
    for name in ("vectors", "corpus"):
        entry = read_manifest(folders[0]).inputs.get(name)  # imported vectors have no corpus
        folder = None if entry is None else result_behind(entry, folders[0])
        if folder is None:
            break
        folders.insert(0, folder)
    return folders


def _pieces_per_word(aligned: Result, adapted: Path) -> dict[str, float] | None:
    """The pieces of a word of the text in both tokenizations, on average over its most frequent words; ``None`` if the
    vectors were imported or the corpus was removed.
    """
    folders = _folders_behind(aligned)
    if len(folders) < 3:  # the vectors' own vocabulary lacks rare words, and may lack counts
        return None
    words, counts = read_vocabulary(folders[0] / VOCABULARY_FILE)
    before, after = DualTokenizer.load(adapted).pieces_of_words(words[:N_COUNTED])
    weights = counts[:N_COUNTED]
    total_count = max(int(weights.sum()), 1)
    return {"before": float(before @ weights) / total_count, "after": float(after @ weights) / total_count}


def _card(session: Session, aligned: Result, config: ExpandConfig, work: Path, outcome: Outcome, cost: Json) -> str:
    facts = outcome.facts
    model, manifests = short(facts["model"]["source"]), [read_manifest(folder) for folder in _folders_behind(aligned)]
    card = AdaptedCard(
        model=Path(model).name if Path(facts["model"]["source"]).is_absolute() else model,
        **card_origin(session, model_of(aligned), *manifests),
        corpus=facts["title"],
        licence=facts["licence"],
        align=aligned.manifest.config,
        expand=asdict(config),
        counts=outcome.counts,
        rows=facts["rows"],
        imported=fitted_vectors(aligned).imported,
        reads_sentences=reads_sentences(work),
        cost=total([*(manifest.cost for manifest in manifests), cost]).as_dict(),
    )
    return card.text()
