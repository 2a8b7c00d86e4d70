"""The w2v stage: prepared words in, word vectors out."""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from greenadapt.checkpoints.provenance import check_model, model_facts
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.cluster import connected
from greenadapt.config import CHOSEN_FOR_VECTORS, ResolvedEngine, TextOptions, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import UsageError
from greenadapt.stages.corpus import choose_corpus, choose_model, run_prepare
from greenadapt.stages.session import W2V, Session, unnamed
from greenadapt.storage.files import Json
from greenadapt.storage.jobs import Job, Outcome
from greenadapt.storage.results import Result, verified
from greenadapt.vectors.cbow import require_engine, resolve_engine, train
from greenadapt.vectors.engines import fast_engine


def w2v(
    session: Session,
    corpus: str | None,
    model: str | None,
    config: W2VConfig,
    text: TextOptions,
    named: Collection[str] | None = None,
) -> Result:
    """Train word vectors on a corpus; prepares it first if needed. For ``named`` see ``check_w2v``."""
    require_engine(config)
    recipe = choose_corpus(session, corpus, text)
    chosen = choose_model(session, recipe.name, model)
    with session.locked(recipe.name, chosen.name):
        training = check_w2v(session, recipe.name, chosen, check_model(chosen).dim, config, named)
        prepared = run_prepare(replace(session, out=None), recipe, chosen, text)
        return run_w2v(session, chosen, prepared, training)


_OF_MACHINES = frozenset({"workers"})
"""Settings that do not change a result."""


@dataclass(frozen=True)
class ResolvedW2V:
    """Settings with all defaults resolved."""

    config: W2VConfig
    is_kept: bool
    """Whether the engine was not requested."""
    chosen: Collection[str] = ()
    """The fields that are chosen by the size of the text, see ``with_schedule``."""

    def settings(self) -> Json:
        """The settings in a manifest; the number of workers, which depends on the machine, is among the facts."""
        return {name: value for name, value in asdict(self.config).items() if name not in _OF_MACHINES}


def check_w2v(
    session: Session,
    corpus: str,
    model: PretrainedModel,
    dim: int,
    config: W2VConfig,
    named: Collection[str] | None = None,
) -> ResolvedW2V:
    """Resolve the settings; ``dim`` defaults to the model's. Raises the errors of the stage about an existing result.

    Fields of ``config`` that are not ``named`` take the values of existing vectors; ``None`` means that all are named.
    Neither a new release nor installing numba changes vectors: ``resolve_engine`` keeps the engine. Raises
    ``MissingError`` if the fast engine is to train and does not work with the installed numba.
    """
    place = session.place(corpus, model.name, W2V)
    if config.dim is None:
        config = replace(config, dim=dim)
    chosen = () if named is None else CHOSEN_FOR_VECTORS - {*named}
    current = None if session.force else place.current()
    if current is not None and current.manifest.stage == W2V:
        config, chosen = with_schedule(config, chosen, current.manifest.counts["tokens"]), ()
        config = session.kept_settings(place, W2V, config, unnamed(config, named, *_OF_MACHINES, "engine"))
        _note_workers(session, current, config)
    engine: ResolvedEngine | None = None if current is None else current.manifest.config.get("engine")
    resolved = ResolvedW2V(resolve_engine(config, engine, session.progress), config.engine == "auto", chosen)
    if session.cluster is not None and resolved.config.engine != "fast":
        raise UsageError(
            f"--cluster trains with the fast engine, not with {resolved.config.engine}'s",
            "give --engine fast, which needs numba, or leave out --cluster",
        )
    session.check(place, W2V, resolved.settings())
    if current is None and resolved.config.engine == "fast":
        fast_engine()  # raises what training would raise, before the text is prepared
    return resolved


def with_schedule(config: W2VConfig, chosen: Collection[str], n_words: int) -> W2VConfig:
    """``config`` with its fields ``chosen``, rate and epochs or one of them, chosen for a text of ``n_words`` words.

    The rate is 0.05; the epochs are 20 · (10⁶ / n_words)^⅓, from 5 to 20. See ``benchmarks/results/word-vectors.md``.
    """
    epochs = min(20, max(5, round(20 * (1e6 / max(n_words, 1)) ** (1 / 3))))
    values = {"epochs": epochs, "alpha": 0.05}
    return replace(config, **{name: values[name] for name in chosen})


def run_w2v(session: Session, model: PretrainedModel, prepared: Result, resolved: ResolvedW2V) -> Result:
    """The stage itself; the caller holds the lock."""
    corpus = prepared.manifest.facts["corpus"]
    config = with_schedule(resolved.config, resolved.chosen, prepared.manifest.counts["tokens"])
    resolved = replace(resolved, config=config)
    place = session.place(corpus, model.name, W2V)

    def build(work: Path) -> Outcome:
        require_engine(config, is_kept=resolved.is_kept)
        words = PreparedCorpus.open(verified(prepared).folder)
        training = work / "training"
        facts: Json = {"corpus": corpus}
        with connected(session.cluster) if session.cluster else nullcontext() as cluster:
            if cluster is not None:
                cluster.require_shared(training)
            vectors = train(
                words,
                config,
                training,
                progress=session.progress,
                max_memory=session.max_memory,
                cluster=cluster,
            )
        vectors.save(work)
        counts = {"words": len(vectors.words), "dim": vectors.dim, "tokens": int(vectors.counts.sum())}
        facts |= {name: prepared.manifest.facts[name] for name in ("given", "title", "licence")}
        workers = config.workers if session.cluster is None else "a cluster's"
        return Outcome(counts, {**facts, "model": model_facts(model), "workers": workers})

    job = Job(
        W2V,
        resolved.settings(),
        {"corpus": prepared.as_input()},
        build,
        checkpoints=("training/epoch-*.safetensors",),
        scratch=("training",),
    )
    return session.run(place, job)


def _note_workers(session: Session, current: Result, config: W2VConfig) -> None:
    if config.workers == 1 and session.cluster is None and current.manifest.facts.get("workers", 1) != 1:
        session.progress.note(
            f"w2v: the vectors in {current.path} were trained by several workers; --force trains them with one, which "
            "gives the same bytes each time"
        )
