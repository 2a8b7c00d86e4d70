"""Choose a corpus and a model, prepare the text, and list corpora."""

import io
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO

from greenadapt.checkpoints.provenance import model_facts, note_lowercasing
from greenadapt.checkpoints.source import PretrainedModel, find_model
from greenadapt.config import CorpusConfig, TextOptions
from greenadapt.corpus.download import fetch, is_fetched, local_path, require_folders
from greenadapt.corpus.opening import STDIN, note_terminal
from greenadapt.corpus.prepared import prepare_corpus
from greenadapt.corpus.readers import CorpusReader, open_corpus, require_local
from greenadapt.corpus.recipes import Recipe, Source, find_kept_input, find_recipe, keep_input, list_recipes
from greenadapt.corpus.text import MAX_DOCUMENT_BYTES
from greenadapt.errors import GreenadaptError, MissingError, UsageError, pluralize
from greenadapt.stages.session import CORPUS, Session, model_of
from greenadapt.store.files import Json, hash_json
from greenadapt.store.locks import lock
from greenadapt.store.outputs import COMPRESSIONS
from greenadapt.store.results import Job, Outcome, Result
from greenadapt.tokenization.files import tokenizer_hash


def list_corpora(session: Session) -> list[Json]:
    """The named corpora, then other corpora in the workspace.

    ``stated`` is the size according to the recipe, ``None`` if it is unknown. ``network`` is ``no``, ``yes``,
    ``fetched``, or ``missing`` if a local source does not exist; ``models`` lists the models that have results in the
    workspace.
    """
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    names = [name for name in session.workspace.corpora() if name not in recipes and session.workspace.models(name)]
    return [*(_row(session, recipe) for recipe in recipes.values()), *(_workspace_row(session, name) for name in names)]


def _row(session: Session, recipe: Recipe) -> Json:
    try:
        require_local(recipe)
        is_here = is_fetched(recipe, session.workspace.downloads(recipe.name))
        network = "no" if recipe.is_local else "fetched" if is_here else "yes"
    except GreenadaptError:
        network = "missing"
    return {
        "name": recipe.name,
        "title": recipe.title,
        "licence": recipe.licence,
        "network": network,
        "models": session.workspace.models(recipe.name),
        "stated": recipe.stated and {**asdict(recipe.stated), "on": recipe.stated.on.isoformat()},
        "format": recipe.format,
        "about": recipe.about,
        "sources": [source.url for source in recipe.sources] or ["the Python packages installed beside greenadapt"],
    }


def _workspace_row(session: Session, name: str) -> Json:
    """A corpus that is only in the workspace, from its newest result."""
    models = session.workspace.models(name)
    row: Json = {"name": name, "title": name, "licence": "unknown", "network": "no", "models": models}
    row["stated"] = None
    for model in models:
        for result in session.workspace.results(name, model):
            facts = result.manifest.facts  # without the corpus for a fine-tuned model
            row |= {key: facts[key] for key in ("title", "licence") if key in facts}
            if result.manifest.stage == CORPUS:
                row["sources"] = sources = list(result.manifest.inputs["text"]["sources"])
                if any(Path(source).is_absolute() and not Path(source).exists() for source in sources):
                    row["network"] = "missing"
    return row


SHUFFLE_MEMORY = 256 << 20
"""Bytes of the word stream shuffled in memory at once; more is not faster."""
_MEMORY_PER_BYTE = 16
"""Upper bound on the bytes of memory that a byte of a document needs to be read and split."""
_TEXT_PER_COMPRESSED_BYTE = 4
"""Approximate bytes of text per byte of a compressed file, to estimate the disk space needed."""


def prepare(session: Session, corpus: str | None, model: str | None, text: TextOptions) -> Result | str:
    """Download a corpus if needed and split it into words as the model's tokenizer does.

    If no model is given or known yet, the corpus is only downloaded; then returns its name on the command line.
    """
    recipe = choose_corpus(session, corpus, text)
    if model is None and not session.workspace.models(recipe.name):
        _fetch(session, recipe)
        open_corpus(recipe, session.workspace.downloads(recipe.name))
        return recipe.argument
    chosen = choose_model(session, recipe.name, model)
    return run_prepare(session, recipe, chosen, text)


def choose_corpus(session: Session, corpus: str | None, text: TextOptions) -> Recipe:
    """The recipe for ``--corpus``: a known name, a path, ``-`` for standard input, or the workspace name of a path or
    an input used before.
    """
    if corpus is None:
        raise UsageError("no corpus", "give one with --corpus (greenadapt corpus list shows the available ones)")
    if corpus == STDIN:
        note_terminal(STDIN, session.progress)
        stream: IO[bytes] = io.BytesIO() if sys.stdin is None else sys.stdin.buffer
        return keep_input(stream, session.workspace.root, text.of_recipe(), session.progress)
    name = session.corpus_name(corpus)
    prepared = [
        result
        for model in session.workspace.models(name)
        for result in session.workspace.results(name, model)
        if result.manifest.stage == CORPUS
    ]
    if name in {recipe.name for recipe in list_recipes()} or not prepared:
        saved_input = find_kept_input(session.workspace.root, corpus, text.of_recipe())
        return saved_input or find_recipe(corpus, text.of_recipe())
    if name == corpus:
        return _recipe_of(prepared[0])
    is_own = text.explicit or Path(corpus).suffix == ".toml"  # what is edited in a recipe counts
    return find_recipe(corpus, text.of_recipe() if is_own else _recipe_settings(prepared[0]))


def _recipe_settings(prepared: Result) -> Json:
    config = prepared.manifest.config
    return {"fields": tuple(config["fields"]), "format": config["format"], "sample_by": config["sample_by"]}


def _recipe_of(prepared: Result) -> Recipe:
    facts, config = prepared.manifest.facts, prepared.manifest.config
    is_installed = config["format"] == "pydocs"  # then the sources are names of packages
    return Recipe(
        name=facts["corpus"],
        title=facts["title"],
        licence=facts["licence"],
        **_recipe_settings(prepared),
        sources=() if is_installed else tuple(map(Source, prepared.manifest.inputs["text"]["sources"])),
        packages=tuple(config["packages"]),
        public_argument=facts["given"],
        argument=facts["corpus"],
    )


def choose_model(session: Session, corpus: str, model: str | None) -> PretrainedModel:
    """The model for ``--model``, which may be its workspace name, or the only one used for the corpus."""
    results = session.workspace.results(corpus, session.model_name(corpus, model))
    if results:
        return model_of(results[0], model)
    if model is None:
        raise MissingError(f"no result for corpus {corpus}, which would say its model", "name one with --model")
    return find_model(model)


def run_prepare(session: Session, recipe: Recipe, model: PretrainedModel, text: TextOptions) -> Result:
    """The stage itself."""
    config = CorpusConfig(**text.of_config())
    earlier = session.workspace.results(recipe.name, model.name)
    newest = next((result.manifest for result in earlier if result.manifest.stage == CORPUS), None)
    if newest is not None and not text.explicit:  # without any option a text is prepared as it was last
        config = CorpusConfig(**{field.name: newest.config[field.name] for field in fields(CorpusConfig)})
    _fetch(session, recipe)
    reading = open_corpus(
        recipe,
        session.workspace.downloads(recipe.name),
        strict=config.strict,
        lenient=config.lenient,
        max_bytes=min(MAX_DOCUMENT_BYTES, session.max_memory // _MEMORY_PER_BYTE),
        workers=session.workers,
    )
    sources = reading.fingerprint()
    inputs: dict[str, Json] = {
        "text": {"sha256": hash_json(list(sources.values())), "sources": sources},
        "tokenizer": {"sha256": tokenizer_hash(model.folder), "source": model.source},
    }

    def build(work: Path) -> Outcome:
        note_lowercasing(model, session.progress)
        counts = prepare_corpus(
            reading.documents(),
            model.folder,
            work,
            config,
            workers=session.workers,
            max_memory=min(session.max_memory, SHUFFLE_MEMORY),
            progress=session.progress,
            size_hint=_size_hint(session, reading),
            cluster=session.cluster,
        )
        if counts["duplicates"]:
            duplicates = pluralize(counts["duplicates"], "exact duplicate")
            session.progress.note(f"dropped {duplicates} of {pluralize(counts['documents'], 'document')}")
        reading.warn_skipped(session.progress)
        return Outcome(counts, {**named, "read": reading.counts})

    named: Json = {
        "corpus": recipe.name,
        "given": recipe.public_argument,
        "title": recipe.title,
        "licence": recipe.licence,
        "model": model_facts(model),
    }
    if recipe.format == "pydocs":
        named["versions"] = {package.name: package.version for package in reading.packages}
    settings = asdict(config) | {name: getattr(recipe, name) for name in ("format", "fields", "packages", "sample_by")}
    job = Job(CORPUS, settings, inputs, defaults=asdict(CorpusConfig()), named=named)
    return session.run(job, build, recipe.name, model.name)


def _fetch(session: Session, recipe: Recipe) -> None:
    """Download what is missing, if the user allows it; else opening the corpus says how."""
    folder = session.workspace.downloads(recipe.name)
    if session.download and not is_fetched(recipe, folder):
        require_folders(recipe, folder)
        with lock(folder / ".lock"):  # the other lock is per corpus and model, and models share downloads
            fetch(recipe.sources, folder, session.progress)


def _size_hint(session: Session, reading: CorpusReader) -> int | None:
    """Approximate bytes of text in the sources."""
    recipe = reading.recipe
    if recipe.format == "pydocs":
        return sum(package.text_bytes for package in reading.packages)
    paths = [local_path(source, session.workspace.downloads(recipe.name)) for source in recipe.sources]
    sizes = [
        file.stat().st_size * (_TEXT_PER_COMPRESSED_BYTE if file.suffix in {*COMPRESSIONS, ".tgz"} else 1)
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else [path])
        if file.is_file()
    ]
    return sum(sizes) if sizes else None
