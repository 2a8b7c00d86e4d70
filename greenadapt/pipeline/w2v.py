"""The w2v stage: prepared words in, word vectors out."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

from greenadapt.checkpoint import Checkpoint
from greenadapt.config import ResolvedEngine, W2VConfig
from greenadapt.corpus.words import PreparedCorpus
from greenadapt.model import PretrainedModel
from greenadapt.pipeline.prepare import TextOptions, choose_corpus, choose_model, run_prepare
from greenadapt.pipeline.session import W2V, Session, model_facts
from greenadapt.store import Job, Outcome, Place, Result, verified
from greenadapt.w2v import require_engine, resolve_engine, train


def w2v(session: Session, corpus: str | None, model: str | None, config: W2VConfig, text: TextOptions) -> Result:
    """Train word vectors on a corpus; prepares it first where need be."""
    require_engine(config)
    recipe = choose_corpus(session, corpus, text)
    chosen = choose_model(session, recipe.name, model)
    with session.locked(recipe.name, chosen.name):
        prepared = run_prepare(replace(session, out=None), recipe, chosen, text)
        return run_w2v(session, chosen, prepared, config)


def run_w2v(session: Session, model: PretrainedModel, prepared: Result, config: W2VConfig) -> Result:
    """The stage itself; the caller holds the lock."""
    if config.dim is None:
        config = replace(config, dim=Checkpoint.open(model.folder).dim)
    corpus = prepared.manifest.facts["corpus"]
    place = session.place(corpus, model.name, W2V)
    is_kept = config.engine == "auto"
    config = resolve_engine(config, None if session.force else _engine_of(place), session.progress)
    # One worker is another result than several; how many several are is not, so that a cron job may change machines.
    settings = {**asdict(config), "workers": "one" if config.workers == 1 else "several"}

    def build(work: Path) -> Outcome:
        require_engine(config, is_kept=is_kept)
        words = PreparedCorpus.open(verified(prepared).folder)
        training = work / "training"
        vectors = train(words, config, training, progress=session.progress, max_memory=session.max_memory)
        vectors.save(work)
        shutil.rmtree(training)
        counts = {"words": len(vectors.words), "dim": vectors.dim, "tokens": int(vectors.counts.sum())}
        facts = {name: prepared.manifest.facts[name] for name in ("given", "title", "licence")}
        return Outcome(counts, {"corpus": corpus, **facts, "model": model_facts(model), "workers": config.workers})

    return session.run(place, Job(W2V, settings, {"corpus": prepared.as_input()}, build, resumes=True))


def _engine_of(place: Place) -> ResolvedEngine | None:
    """The engine of the vectors in ``place``, so that neither a new release nor an installed numba changes them."""
    current = place.current()
    return current.manifest.config.get("engine") if current is not None else None
