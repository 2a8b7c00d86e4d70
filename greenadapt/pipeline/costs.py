"""What the results in a workspace cost."""

from greenadapt.cost import KG_PER_LB, paper_table
from greenadapt.errors import MissingError
from greenadapt.model import model_name
from greenadapt.pipeline.session import Session
from greenadapt.store import Json


def stage_costs(session: Session, corpus: str | None, model: str | None) -> list[Json]:
    """One row a result: ``corpus``, ``model``, ``stage`` and the fields of ``cost.Cost``.

    Only those of ``corpus`` and ``model`` where these are named; raises ``MissingError`` where these have none.
    """
    workspace = session.workspace
    corpora = [session.corpus_name(corpus)] if corpus is not None else workspace.corpora()
    wanted = model_name(model) if model is not None else None
    rows = [
        {"corpus": name, "model": known, "stage": result.path.name, **result.manifest.cost}
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


def paper_costs() -> list[Json]:
    """The paper's table: ``paper`` (the model), ``size``, ``hardware``, ``watts``, ``hours``, CO2 and dollars by the
    formula, and both as published.
    """
    return [
        {
            "paper": entry.row.model,
            "size": entry.row.size,
            "hardware": entry.row.hardware,
            "watts": entry.row.watts,
            "hours": entry.row.hours,
            "co2_lbs": entry.co2_lbs,
            "co2_kg": entry.co2_lbs * KG_PER_LB,
            "usd_low": entry.usd_low,
            "usd_high": entry.usd_high,
            "published_co2_lbs": entry.row.published_co2_lbs,
            "published_usd": list(entry.row.published_usd),
        }
        for entry in paper_table()
    ]
