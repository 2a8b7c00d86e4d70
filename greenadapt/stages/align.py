"""The align stage: word vectors and a model in, the map and its held-out figures out."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.provenance import check_model, model_facts
from greenadapt.checkpoints.source import find_model
from greenadapt.config import AlignConfig
from greenadapt.errors import MissingError, UsageError
from greenadapt.report.tables import rows_warning
from greenadapt.stages.session import ALIGN, W2V, OpenedBase, Session, model_of, require_made_for
from greenadapt.store.files import Json, hash_file, path_name, shorten_path, write_json
from greenadapt.store.results import Job, Outcome, Result, find_input, open_result, verify_result
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.vectors.alignment import check_casing, overlap
from greenadapt.vectors.quality import KnownWords, fit_and_measure
from greenadapt.vectors.word_vectors import VECTORS, WordVectors, read_vectors

REPORT = "report.json"


@dataclass(frozen=True)
class VectorSource:
    """Word vectors of a w2v result, of a file, or those that a map was fitted on."""

    entry: Json
    """Their entry in the manifest."""
    facts: Json
    load: Callable[[], WordVectors]
    imported: bool
    """Whether the result keeps a copy, since the file may be deleted."""

    @cached_property
    def vectors(self) -> WordVectors:
        """The vectors, read once."""
        return self.load()


def align(
    session: Session, corpus: str | None, model: str | None, config: AlignConfig, vectors: Path | None = None
) -> Result:
    """Fit the map from a corpus's word vectors, or from ``vectors``, into the model's wordpiece space."""
    if vectors is None:
        trained = session.find_only(corpus, model, W2V)
        source, chosen = trained_vectors(trained), model_of(trained, model)
    else:
        if model is None:
            raise UsageError("--vectors needs --model", "give the model whose space the vectors are mapped into")
        chosen = find_model(model)
        source = open_vectors(session, vectors, corpus)
    name = source.facts["corpus"]
    check_model(chosen)
    WordSplitter.load(chosen.folder)  # raises the errors of the tokenizer before any work
    session.check_out(ALIGN, asdict(config))
    return run_align(session, name, OpenedBase(chosen), source, config)


def trained_vectors(result: Result) -> VectorSource:
    """The vectors of a w2v result."""
    facts = {name: result.manifest.facts[name] for name in ("corpus", "given", "title", "licence")}
    return VectorSource(
        result.as_input(), facts, lambda: WordVectors.load(verify_result(result).folder), imported=False
    )


def open_vectors(session: Session, path: Path, corpus: str | None, model: str | None = None) -> VectorSource:
    """Vectors of a w2v result, which must be of ``corpus`` and ``model`` if given; or of a file, with any name as
    ``corpus``.
    """
    if path.is_dir():
        trained = open_result(path, W2V)
        require_made_for(session, trained, "--vectors", corpus, model)
        return trained_vectors(trained)
    if not path.is_file():
        raise MissingError(f"no vectors file {path}", "give a .bin, .vec or .txt file, or a w2v result's folder")
    name = path_name(str(path.resolve())) if corpus is None else session.corpus_name(corpus)
    facts = {"corpus": name, "given": shorten_path(str(path)), "title": path.name, "licence": "unknown"}
    entry = {"sha256": hash_file(path), "path": str(path.resolve())}
    return VectorSource(entry, facts, lambda: read_vectors(path, session.progress), imported=True)


def run_align(
    session: Session,
    corpus: str,
    base: OpenedBase,
    source: VectorSource,
    config: AlignConfig,
    *,
    warn_if_poor: bool = True,
) -> Result:
    """The stage itself.

    ``warn_if_poor``: warn of a map that explains nothing; ``False`` if ``expand`` follows, which judges the rows.
    """

    def build(work: Path) -> Outcome:
        vectors, embedding, vocabulary = source.vectors, base.checkpoint.embedding(), base.vocabulary
        has_upper = any(word != word.lower() for word in vocabulary.whole_words)
        lowercases = WordSplitter(vocabulary.tokenizer).lowercases
        if warning := check_casing(vectors.words, lowercases=lowercases, vocabulary_has_upper=has_upper):
            session.progress.warn(warning)
        words, rows, ids = overlap(vectors, vocabulary)
        matrix, base_rows = np.asarray(vectors.matrix[rows], np.float32), embedding[: vocabulary.size]
        special_ids = vocabulary.special_ids
        overlap_words = KnownWords(matrix, vectors.counts[rows], ids, base_rows, special_ids=special_ids, words=words)
        diagnostics, alignment = fit_and_measure(overlap_words, config, session.progress)
        for message in filter(None, (*alignment.warnings, diagnostics.note)):
            session.progress.warn(message)
        heldout = asdict(diagnostics)
        if warn_if_poor and config.method != "random" and (warning := rows_warning(heldout["figures"])):
            session.progress.warn(warning)
        alignment.save(work)
        if source.imported:
            vectors.save(work)
        write_json(work / REPORT, {**alignment.facts(), "heldout": heldout})
        counts = {
            "overlap": len(words),
            "words": len(vectors.words),
            "source_dim": alignment.source_dim,
            "target_dim": alignment.target_dim,
            "rank": alignment.rank,
        }
        return Outcome(counts, {**named, "heldout": heldout})

    named = {**source.facts, "model": model_facts(base.model)}
    inputs = {"vectors": source.entry, "model": base.entry}
    job = Job(ALIGN, asdict(config), inputs, defaults=asdict(AlignConfig()), named=named)
    return session.run(job, build, corpus, base.model.name)


def vectors_of_map(aligned: Result) -> VectorSource:
    """The vectors that a map was fitted on, checked for changes when they are read."""
    entry = aligned.manifest.inputs["vectors"]
    if (aligned.folder / VECTORS).is_file():
        return VectorSource(entry, {}, lambda: WordVectors.load(aligned.folder), imported=True)

    def load() -> WordVectors:
        result = open_result(find_input(entry, aligned.path), W2V)
        if result.manifest.digest != entry["sha256"]:
            raise MissingError(
                f"{entry['path']} holds other vectors than those that {aligned.path} was fitted on",
                "run greenadapt align again",
            )
        return WordVectors.load(verify_result(result).folder)

    return VectorSource(entry, {}, load, imported=False)
