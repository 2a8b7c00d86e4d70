"""The w2v stage: prepared words in, word vectors out."""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from greenadapt.checkpoints.provenance import check_model, model_facts
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.cluster import connected
from greenadapt.config import CHOSEN_FOR_VECTORS, TextOptions, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import UsageError
from greenadapt.stages.corpus import choose_corpus, choose_model, run_prepare
from greenadapt.stages.session import W2V, Session
from greenadapt.store.files import Json
from greenadapt.store.results import Job, Outcome, Result, verified
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
    """Train word vectors on a corpus; prepares it first if needed.

    Rate and epochs that are not ``named`` are chosen by the size of the text; ``None`` means that all fields are named.
    """
    require_engine(config)
    recipe = choose_corpus(session, corpus, text)
    chosen = choose_model(session, recipe.name, model)
    training = resolve_w2v(session, check_model(chosen).dim, config, named)
    session.check_out(W2V)
    prepared = run_prepare(replace(session, out=None), recipe, chosen, text)
    return run_w2v(session, chosen, prepared, training)


_OF_MACHINES = frozenset({"workers"})
"""Settings that do not change a result."""


@dataclass(frozen=True)
class ResolvedW2V:
    """Settings with all defaults resolved."""

    config: W2VConfig
    chosen: Collection[str] = ()
    """The fields that are chosen by the size of the text, see ``with_schedule``."""

    def settings(self) -> Json:
        """The settings in a manifest; the number of workers, which depends on the machine, is among the facts."""
        return {name: value for name, value in asdict(self.config).items() if name not in _OF_MACHINES}


def resolve_w2v(session: Session, dim: int, config: W2VConfig, named: Collection[str] | None = None) -> ResolvedW2V:
    """Resolve the settings; ``dim`` defaults to the model's.

    Raises ``MissingError`` if the fast engine is to train and does not work with the installed numba.
    """
    config = replace(resolve_engine(config, session.progress), dim=config.dim or dim)
    if session.cluster is not None and config.engine != "fast":
        raise UsageError(
            f"--cluster trains with the fast engine, not with {config.engine}'s",
            "give --engine fast, which needs numba, or leave out --cluster",
        )
    if config.engine == "fast":
        fast_engine()  # raises what training would raise, before the text is prepared
    return ResolvedW2V(config, () if named is None else CHOSEN_FOR_VECTORS - {*named})


def with_schedule(config: W2VConfig, chosen: Collection[str], n_words: int) -> W2VConfig:
    """``config`` with its fields ``chosen``, rate and epochs or one of them, chosen for a text of ``n_words`` words.

    The rate is 0.05; the epochs are 20 · (10⁶ / n_words)^⅓, from 5 to 20. See ``benchmarks/results/word-vectors.md``.
    """
    epochs = min(20, max(5, round(20 * (1e6 / max(n_words, 1)) ** (1 / 3))))
    values = {"epochs": epochs, "alpha": 0.05}
    return replace(config, **{name: values[name] for name in chosen})


def run_w2v(session: Session, model: PretrainedModel, prepared: Result, resolved: ResolvedW2V) -> Result:
    """The stage itself."""
    corpus = prepared.manifest.facts["corpus"]
    config = with_schedule(resolved.config, resolved.chosen, prepared.manifest.counts["tokens"])
    resolved = replace(resolved, config=config)

    def build(work: Path) -> Outcome:
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
        checkpoints=("training/checkpoint.safetensors",),
        scratch=("training",),
        defaults=asdict(W2VConfig()),
        named={name: prepared.manifest.facts[name] for name in ("corpus", "given", "title", "licence")},
    )
    return session.run(job, corpus, model.name)
