"""The cost of the results in a workspace."""

from collections.abc import Sequence
from pathlib import Path

from greenadapt.checkpoints.source import model_name
from greenadapt.cost import KG_PER_LB, PAPER_ROWS
from greenadapt.errors import MissingError
from greenadapt.stages.lineage import with_sources
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json


def stage_costs(session: Session, corpus: str | None, model: str | None) -> list[Json]:
    """One row per result: ``corpus``, ``model``, ``stage`` and the fields of ``cost.Cost``.

    Only those of ``corpus`` and ``model`` if given; raises ``MissingError`` if there are none.
    """
    workspace = session.workspace
    corpora = [session.corpus_name(corpus)] if corpus is not None else workspace.corpora()
    wanted = model_name(model) if model is not None else None
    rows = [
        {"corpus": name, "model": known, "stage": result.path.name, **result.manifest.whole_cost}
        for name in corpora
        for known in workspace.models(name)
        if wanted in (None, known)
        for result in workspace.results(name, known)
    ]
    if not rows and (corpus is not None or model is not None):
        what = " and ".join(name for name in (corpus, model) if name is not None)
        others = [name for name in workspace.corpora() if workspace.models(name)]
        raise MissingError(
            f"no results for {what} in {workspace.root}", f"there are results for: {', '.join(others) or 'nothing'}"
        )
    order = {"corpus": 0, "w2v": 1, "align": 2, "expand": 3, "identifiers": 4, "finetune": 5}
    return sorted(rows, key=lambda row: (row["corpus"], row["model"], order.get(row["stage"].split("@")[0], 9)))


def result_costs(session: Session, folders: Sequence[Path]) -> list[Json]:
    """One row per result, after those it was made from: ``folder``, ``stage`` and the fields of ``cost.Cost``.

    Warns of inputs that were made again since, whose cost is unknown. Raises ``MissingError`` for a folder
    that holds no result.
    """
    return [
        {"folder": str(result.path), "stage": result.manifest.stage, **result.manifest.whole_cost}
        for result in with_sources(folders, session.progress)
    ]


def paper_costs() -> list[Json]:
    """The paper's table: ``paper`` (the model), ``size``, ``hardware``, ``watts``, ``hours``, CO2 and dollars by the
    formula, and both as published.
    """
    return [
        {
            "paper": row.model,
            "size": row.size,
            "hardware": row.hardware,
            "watts": row.watts,
            "hours": row.hours,
            "co2_lbs": row.co2_lbs,
            "co2_kg": row.co2_lbs * KG_PER_LB,
            "usd_low": row.usd[0],
            "usd_high": row.usd[1],
            "published_co2_lbs": row.published_co2_lbs,
            "published_usd": list(row.published_usd),
        }
        for row in PAPER_ROWS
    ]
