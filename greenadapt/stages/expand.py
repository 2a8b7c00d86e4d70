"""The expand stage: a map, vectors and a model in, an adapted model folder out."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

from greenadapt.checkpoints.layout import FACTS_FILE, WORD_VECTORS_FILE
from greenadapt.checkpoints.provenance import check_model, copy_task, reads_sentences, task_input
from greenadapt.checkpoints.writer import copy_side_files, write_expanded
from greenadapt.config import AlignConfig, ExpandConfig
from greenadapt.corpus.prepared import VOCABULARY_FILE, read_vocabulary
from greenadapt.cost import total
from greenadapt.errors import MissingError
from greenadapt.report.cards import AdaptedCard
from greenadapt.report.tables import MAP, rows_warning
from greenadapt.stages.align import VectorSource, vectors_of_map
from greenadapt.stages.session import ALIGN, EXPAND, OpenedBase, Session, card_origin, model_of, require_made_for
from greenadapt.store.files import Json, expand_home, hash_file, shorten_path, write_json
from greenadapt.store.results import (
    Job,
    Outcome,
    Result,
    find_input,
    input_result,
    open_result,
    read_manifest,
    verify_result,
)
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.export import export_tokenizers
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.quality import MIN_OVERLAP
from greenadapt.vectors.rows import Expansion, replacements
from greenadapt.vectors.stacked import StackedVectors
from greenadapt.version import __version__

N_COUNTED = 200_000
"""The number of a text's most frequent words whose pieces are counted."""


def expand(
    session: Session, corpus: str | None, model: str | None, config: ExpandConfig, alignment: Path | None = None
) -> Result:
    """Add rows for new words to the model, and write a folder that transformers loads.

    The map is that in the folder ``alignment``, or else that of a corpus and a model in the workspace. Raises
    ``UsageError`` if the folder's is of another corpus or model.
    """
    if alignment is None:
        aligned = session.find_only(corpus, model, ALIGN)
    else:
        aligned = open_result(alignment, ALIGN)
        require_made_for(session, aligned, "--alignment", corpus, model)
    chosen = model_of(aligned, model)
    check_expand(session, config)
    check_model(chosen, whole=True)
    return run_expand(session, OpenedBase(chosen), aligned, vectors_of_map(aligned), config)


def alignment_of(folder: Path) -> Result:
    """The map of the adapted model in ``folder``.

    Raises ``MissingError`` if the model is not a result of ``expand``, or the map was removed or fitted again.
    """
    entry = read_manifest(folder.resolve()).inputs.get("alignment")
    if entry is None:
        raise MissingError(f"the manifest of {folder} names no map", "give the folder of an expand result")
    path = find_input(entry, folder)
    if not path.is_dir():
        raise MissingError(f"the map of {folder} is no longer in {entry['path']}", "adapt the model again")
    aligned = open_result(path, ALIGN)
    if aligned.manifest.digest != entry["sha256"]:
        raise MissingError(f"{path} is not the map that {folder} was made with", "adapt the model again")
    return aligned


def check_expand(session: Session, config: ExpandConfig) -> None:
    """Raise the errors of the stage about its files, before any work."""
    for path in config.restrict_to:
        if not Path(path).is_file():
            raise MissingError(f"no file {path}", "give --restrict-to a text file")
    session.check_out(EXPAND, asdict(config))


def run_expand(
    session: Session, base: OpenedBase, aligned: Result, source: VectorSource, config: ExpandConfig
) -> Result:
    """The stage itself."""
    model = base.model
    named = {name: aligned.manifest.facts[name] for name in ("corpus", "title", "licence", "model")}

    def build(work: Path) -> Outcome:
        base.require_unchanged(aligned)
        expansion = open_expansion(base, aligned, source, config)
        recipe = expansion.recipe
        if config.rows == "form" and recipe.name != "form":
            n_known = len(expansion.known_words.base_ids)
            session.progress.warn(
                f"--rows form needs {MIN_OVERLAP} words that the model knows and can also spell in pieces, the text "
                f"has {n_known}: the new rows are those of --rows pieces; use more text"
            )
        n_hidden = write_adapted(expansion, work)
        counts = {
            "words": len(expansion.entries.words),
            "rows": len(expansion.entries),
            "base_rows": base.checkpoint.n_rows,
            "overlap": aligned.manifest.counts["overlap"],
            "hidden_words": n_hidden,
            "hidden_occurrences": expansion.hidden_occurrences,
        }
        facts = dict(named)
        figures: Json = {name: asdict(heldout) for name, heldout in expansion.heldout_figures.items()}
        if recipe.name == MAP and (map_figures := aligned.manifest.facts["heldout"]["figures"]):
            figures = {MAP: map_figures}
        facts["rows"] = {"recipe": recipe.name, "heldout": figures}
        facts["pieces_per_word"] = _pieces_per_word(aligned, work)
        warn_if_poor = expansion.fitting.method != "random" or not recipe.needs_map
        if warn_if_poor and (warning := rows_warning(figures.get(recipe.name), recipe.name)):
            session.progress.warn(warning)
        write_json(work / FACTS_FILE, {"greenadapt": __version__, **facts, "config": asdict(config), **counts})
        return Outcome(counts, {**facts, "added": expansion.sample_words()})

    job = Job(
        EXPAND,
        asdict(config),
        _inputs(base, aligned, config),
        defaults=asdict(ExpandConfig()),
        named=named,
        card=partial(_card, session, aligned, config),
    )
    return session.run(job, build, named["corpus"], model.name)


def open_expansion(base: OpenedBase, aligned: Result, source: VectorSource, config: ExpandConfig) -> Expansion:
    """The rows that the map ``aligned`` of the vectors of ``source`` gives to the model ``base``."""
    alignment, fitting = Alignment.load(verify_result(aligned).folder), AlignConfig(**aligned.manifest.config)
    return Expansion(base.checkpoint, base.vocabulary, source.vectors, alignment, config, fitting)


def _inputs(base: OpenedBase, aligned: Result, config: ExpandConfig) -> dict[str, Json]:
    """What the result is made from, by name."""
    inputs = {"alignment": aligned.as_input(), "model": base.entry}
    if (task := task_input(base.model.folder)) is not None:
        inputs["task"] = task
    for number, path in enumerate((expand_home(path).absolute() for path in config.restrict_to), 1):
        name = f"text {path.name}"
        name = f"text {number} {path.name}" if name in inputs else name
        inputs[name] = {"sha256": hash_file(path), "path": str(path)}
    return inputs


def write_adapted(expansion: Expansion, work: Path) -> int:
    """Write weights, configuration, both tokenizers and the table of added words into ``work``, see
    ``export_tokenizers``.
    """
    checkpoint, vocabulary, config = expansion.checkpoint, expansion.vocabulary, expansion.config
    folder, entries = checkpoint.folder, expansion.entries
    first_id = checkpoint.first_new_id(vocabulary.size)
    replaced = None
    if config.replace_all:
        replaced = replacements(expansion.vectors, vocabulary.whole_words, expansion.alignment)
    write_expanded(checkpoint, expansion.rows(), work, replaced=replaced)
    copy_side_files(folder, work)
    copy_task(folder, work)
    if vocabulary.kind == "wordpiece" and not (work / WORD_VECTORS_FILE).is_file():  # a task model keeps its own
        StackedVectors.of(expansion.vectors, vocabulary, entries.words).write(work / WORD_VECTORS_FILE)
    AddedWords.build(entries, vocabulary, first_id, config.oov).write(work / WORDS_FILE)
    return export_tokenizers(vocabulary, folder, work, entries, first_id, config.oov)


def find_source_folders(aligned: Result) -> list[Path]:
    """The folders of corpus, word vectors and map, without removed results and those before them."""
    folders = [aligned.path]
    for name in ("vectors", "corpus"):
        entry = read_manifest(folders[0]).inputs.get(name)  # imported vectors have no corpus
        folder = None if entry is None else input_result(entry, folders[0])
        if folder is None:
            break
        folders.insert(0, folder)
    return folders


def _pieces_per_word(aligned: Result, adapted: Path) -> dict[str, float] | None:
    """The pieces of a word of the text in both tokenizations, on average over its most frequent words; ``None`` if the
    vectors were imported or the corpus was removed.
    """
    folders = find_source_folders(aligned)
    if len(folders) < 3:  # the vectors' own vocabulary lacks rare words, and may lack counts
        return None
    words, counts = read_vocabulary(folders[0] / VOCABULARY_FILE)
    before, after = DualTokenizer.load(adapted).pieces_of_words(words[:N_COUNTED])
    weights = counts[:N_COUNTED]
    total_count = max(int(weights.sum()), 1)
    return {"before": float(before @ weights) / total_count, "after": float(after @ weights) / total_count}


def _card(session: Session, aligned: Result, config: ExpandConfig, work: Path, outcome: Outcome, cost: Json) -> str:
    facts = outcome.facts
    model = shorten_path(facts["model"]["source"])
    manifests = [read_manifest(folder) for folder in find_source_folders(aligned)]
    card = AdaptedCard(
        model=Path(model).name if Path(facts["model"]["source"]).is_absolute() else model,
        **card_origin(session, model_of(aligned), *manifests),
        corpus=facts["title"],
        licence=facts["licence"],
        align=aligned.manifest.config,
        expand=asdict(config),
        counts=outcome.counts,
        rows=facts["rows"],
        imported=vectors_of_map(aligned).imported,
        reads_sentences=reads_sentences(work),
        cost=asdict(total([*(manifest.cost for manifest in manifests), cost])),
    )
    return card.text()
