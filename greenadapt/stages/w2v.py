"""The w2v stage: prepared words in, word vectors out."""

import shutil
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from greenadapt.checkpoints.provenance import check_model, model_facts
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.cluster import connected
from greenadapt.config import ResolvedEngine, TextOptions, W2VConfig
from greenadapt.corpus.words import PreparedCorpus
from greenadapt.errors import UsageError
from greenadapt.stages.corpus import choose_corpus, choose_model, run_prepare
from greenadapt.stages.session import W2V, Session
from greenadapt.stages.updates import earlier_vectors, vectors_update
from greenadapt.storage.files import Json
from greenadapt.storage.jobs import Job, Outcome, Place
from greenadapt.storage.results import EARLIER_COST, Result, verified
from greenadapt.vectors.cbow import require_engine, resolve_engine, train


def w2v(session: Session, corpus: str | None, model: str | None, config: W2VConfig, text: TextOptions) -> Result:
    """Train word vectors on a corpus; prepares it first if needed."""
    require_engine(config)
    recipe = choose_corpus(session, corpus, text)
    chosen = choose_model(session, recipe.name, model)
    with session.locked(recipe.name, chosen.name):
        training = check_w2v(session, recipe.name, chosen, check_model(chosen, generative=True).dim, config)
        prepared = run_prepare(replace(session, out=None), recipe, chosen, text)
        return run_w2v(session, chosen, prepared, training)


@dataclass(frozen=True)
class Resolved:
    """Settings with all defaults resolved."""

    config: W2VConfig
    is_kept: bool
    """Whether the engine was not requested."""
    several: bool
    """Whether several threads train, on this machine or on a cluster."""

    def settings(self) -> Json:
        """The settings in a manifest."""
        # One worker gives another result than several; how many several are does not count: machines may change.
        settings = {**asdict(self.config), "workers": "several" if self.several else "one"}
        del settings["sync_words"]
        return settings


def check_w2v(session: Session, corpus: str, model: PretrainedModel, dim: int, config: W2VConfig) -> Resolved:
    """The settings, ``dim`` by default the model's; raises what the stage would raise about an existing result."""
    place = session.place(corpus, model.name, W2V)
    if config.dim is None:
        config = replace(config, dim=dim)
    before = None if session.force else _engine_of(place)
    resolved = Resolved(
        resolve_engine(config, before, session.progress),
        config.engine == "auto",
        config.workers > 1 or session.cluster is not None,
    )
    if session.cluster is not None and resolved.config.engine != "fast":
        raise UsageError(
            f"--cluster trains with the fast engine, not with {resolved.config.engine}'s",
            "give --engine fast, which needs numba, or leave out --cluster",
        )
    session.check(place, W2V, resolved.settings())
    return resolved


def run_w2v(
    session: Session, model: PretrainedModel, prepared: Result, resolved: Resolved, *, update: bool = False
) -> Result:
    """The stage itself; the caller holds the lock. ``update``: train existing vectors on if they have not drifted."""
    corpus, config = prepared.manifest.facts["corpus"], resolved.config
    place = session.place(corpus, model.name, W2V)
    former = place.current() if update else None

    def build(work: Path) -> Outcome:
        require_engine(config, is_kept=resolved.is_kept)
        words = PreparedCorpus.open(verified(prepared).folder)
        training = work / "training"
        earlier = None if former is None else earlier_vectors(former, prepared, words, config)
        facts: Json = {"corpus": corpus}
        if isinstance(earlier, str):
            session.progress.note(f"w2v: trained afresh: {earlier}")
            facts["afresh"], earlier = earlier, None
        progress, memory = session.progress, session.max_memory
        with ExitStack() as stack:
            cluster = stack.enter_context(connected(session.cluster)) if session.cluster else None
            if cluster is not None:
                cluster.require_shared(training)
            vectors = train(
                words, config, training, progress=progress, max_memory=memory, earlier=earlier, cluster=cluster
            )
        if former is not None and earlier is not None:
            facts["updates"] = vectors_update(former, prepared, earlier, len(vectors.words))
            facts[EARLIER_COST] = former.manifest.whole_cost
        vectors.save(work)
        shutil.rmtree(training)
        counts = {"words": len(vectors.words), "dim": vectors.dim, "tokens": int(vectors.counts.sum())}
        facts |= {name: prepared.manifest.facts[name] for name in ("given", "title", "licence")}
        return Outcome(counts, {**facts, "model": model_facts(model), "workers": config.workers})

    again = "updating it" if update else Job.again
    job = Job(W2V, resolved.settings(), {"corpus": prepared.as_input()}, build, resumes=True, again=again)
    return session.run(place, job)


def _engine_of(place: Place) -> ResolvedEngine | None:
    """The engine of the vectors in ``place``, so that neither a new release nor installing numba changes them."""
    current = place.current()
    return current.manifest.config.get("engine") if current is not None else None
