"""The w2v stage: prepared words in, word vectors out."""

from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from greenadapt.checkpoints.provenance import check_model, model_facts
from greenadapt.checkpoints.source import PretrainedModel
from greenadapt.cluster import connect
from greenadapt.config import TextOptions, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.stages.corpus import choose_corpus, choose_model, run_prepare
from greenadapt.stages.session import W2V, Session
from greenadapt.store.files import Json
from greenadapt.store.results import Job, Outcome, Result, verify_result
from greenadapt.vectors.cbow import load_engine, train


def w2v(session: Session, corpus: str | None, model: str | None, config: W2VConfig, text: TextOptions) -> Result:
    """Train word vectors on a corpus; prepares it first if needed.

    Rate and epochs that ``config`` leaves open are chosen by the size of the text.
    """
    recipe = choose_corpus(session, corpus, text)
    chosen = choose_model(session, recipe.name, model)
    check_model(chosen)
    load_engine()  # raises before the text is prepared
    session.check_out(W2V)
    prepared = run_prepare(replace(session, out=None), recipe, chosen, text)
    return run_w2v(session, chosen, prepared, config)


_OF_MACHINES = frozenset({"workers"})
"""Settings that do not change a result; the number of workers is among the facts."""


def with_schedule(config: W2VConfig, n_words: int) -> W2VConfig:
    """``config`` with rate and epochs, if the user set none, chosen for a text of ``n_words`` words.

    The rate is 0.05; the epochs are 20 · (10⁶ / n_words)^⅓, from 5 to 20. See ``benchmarks/results/word-vectors.md``.
    """
    epochs = min(20, max(5, round(20 * (1e6 / max(n_words, 1)) ** (1 / 3))))
    values = {"epochs": epochs, "alpha": 0.05}
    return replace(config, **{name: value for name, value in values.items() if name not in config.explicit})


def run_w2v(session: Session, model: PretrainedModel, prepared: Result, config: W2VConfig) -> Result:
    """The stage itself."""
    corpus = prepared.manifest.facts["corpus"]
    workers = config.workers if "workers" in config.explicit else session.workers
    config = with_schedule(config, prepared.manifest.counts["tokens"])
    config = replace(config, workers=workers, dim=config.dim or check_model(model).dim)

    def build(work: Path) -> Outcome:
        words = PreparedCorpus(verify_result(prepared).folder)
        training = work / "training"
        facts: Json = {"corpus": corpus}
        with connect(session.cluster) if session.cluster else nullcontext() as cluster:
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
        facts["workers"] = config.workers if session.cluster is None else "a cluster's"
        return Outcome(counts, {**facts, "model": model_facts(model)})

    job = Job(
        W2V,
        {name: value for name, value in asdict(config).items() if name not in _OF_MACHINES},
        {"corpus": prepared.as_input()},
        checkpoints=("training/checkpoint.safetensors",),
        scratch=("training",),
        defaults=asdict(W2VConfig()),
        named={name: prepared.manifest.facts[name] for name in ("corpus", "given", "title", "licence")},
    )
    return session.run(job, build, corpus, model.name)
