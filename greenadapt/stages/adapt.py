"""From raw text to an adapted model in one go."""

from dataclasses import dataclass, replace

from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.stages.align import check_align, run_align, trained_vectors
from greenadapt.stages.corpus import choose_corpus, choose_model, run_prepare
from greenadapt.stages.expand import check_expand, run_expand
from greenadapt.stages.session import Session
from greenadapt.stages.w2v import check_w2v, run_w2v
from greenadapt.storage.results import Result
from greenadapt.vectors.cbow import require_engine


@dataclass(frozen=True)
class Plan:
    """The configuration of every stage."""

    w2v: W2VConfig
    align: AlignConfig
    expand: ExpandConfig
    text: TextOptions


def adapt(session: Session, corpus: str | None, model: str | None, plan: Plan) -> list[Result]:
    """``w2v``, ``align`` and ``expand`` in one; only the last stage goes to ``session.out``."""
    require_engine(plan.w2v)
    recipe = choose_corpus(session, corpus, plan.text)
    chosen = choose_model(session, recipe.name, model)
    inner = replace(session, out=None)
    with session.locked(recipe.name, chosen.name):
        training = check_w2v(inner, recipe.name, chosen, plan.w2v)
        check_align(inner, recipe.name, chosen, plan.align)
        check_expand(session, recipe.name, chosen, plan.expand)
        prepared = run_prepare(inner, recipe, chosen, plan.text)
        vectors = run_w2v(inner, chosen, prepared, training)
        aligned = run_align(inner, recipe.name, chosen, trained_vectors(vectors), plan.align)
        return [prepared, vectors, aligned, run_expand(session, recipe.name, chosen, aligned, plan.expand)]
