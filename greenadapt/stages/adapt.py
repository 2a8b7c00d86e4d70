"""From raw text to an adapted model in one command."""

from dataclasses import replace

from greenadapt.checkpoints.provenance import check_model
from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.stages.align import run_align, trained_vectors
from greenadapt.stages.corpus import choose_corpus, choose_model, run_prepare
from greenadapt.stages.expand import check_expand, run_expand
from greenadapt.stages.session import OpenedBase, Session
from greenadapt.stages.w2v import run_w2v
from greenadapt.store.results import Result
from greenadapt.vectors.cbow import load_engine


def adapt(  # noqa: PLR0913  (a configuration for each stage)
    session: Session,
    corpus: str | None,
    model: str | None,
    text: TextOptions,
    w2v: W2VConfig,
    align: AlignConfig,
    expand: ExpandConfig,
) -> list[Result]:
    """``w2v``, ``align`` and ``expand`` in one; only the last stage goes to ``session.out``."""
    recipe = choose_corpus(session, corpus, text)
    chosen = choose_model(session, recipe.name, model)
    inner = replace(session, out=None)
    check_model(chosen, whole=True)
    base = OpenedBase(chosen)
    base.checkpoint.first_new_id(base.vocabulary.size)  # refuses ids without rows, before hours of work
    load_engine()
    check_expand(session, expand)
    prepared = run_prepare(inner, recipe, chosen, text)
    trained = run_w2v(inner, chosen, prepared, w2v)
    vectors = trained_vectors(trained)
    base = OpenedBase(chosen) if prepared.fresh or trained.fresh else base  # files can change within hours
    # With the rows `form` and `pieces` the map gives only figures and neighbours.
    aligned = run_align(inner, recipe.name, base, vectors, align, warn_if_poor=False)
    return [prepared, trained, aligned, run_expand(session, base, aligned, vectors, expand)]
