"""From raw text to an adapted model in one command."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from greenadapt.checkpoints.provenance import check_model
from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.stages.align import run_align, trained_vectors
from greenadapt.stages.corpus import choose_corpus, choose_model, run_prepare
from greenadapt.stages.expand import check_expand, run_expand
from greenadapt.stages.session import OpenedBase, Session
from greenadapt.stages.w2v import resolve_w2v, run_w2v
from greenadapt.store.results import Result
from greenadapt.vectors.cbow import require_engine


@dataclass(frozen=True)
class AdaptRequest:
    """The configuration of every stage."""

    w2v: W2VConfig
    align: AlignConfig
    expand: ExpandConfig
    text: TextOptions
    named: Collection[str] | None = None
    """The fields of ``w2v`` that the user named; ``None``: all."""


def adapt(session: Session, corpus: str | None, model: str | None, request: AdaptRequest) -> list[Result]:
    """``w2v``, ``align`` and ``expand`` in one; only the last stage goes to ``session.out``."""
    require_engine(request.w2v)
    recipe = choose_corpus(session, corpus, request.text)
    chosen = choose_model(session, recipe.name, model)
    inner = replace(session, out=None)
    dim = check_model(chosen, whole=True).dim
    base = OpenedBase(chosen)
    base.checkpoint.first_new_id(base.vocabulary.size)  # refuses ids without rows, before hours of work
    training = resolve_w2v(session, dim, request.w2v, request.named)
    check_expand(session, request.expand)
    prepared = run_prepare(inner, recipe, chosen, request.text)
    trained = run_w2v(inner, chosen, prepared, training)
    vectors = trained_vectors(trained)
    base = OpenedBase(chosen) if prepared.fresh or trained.fresh else base  # files can change within hours
    aligned = run_align(inner, recipe.name, base, vectors, request.align, is_judged=False)
    return [prepared, trained, aligned, run_expand(session, base, aligned, vectors, request.expand)]
