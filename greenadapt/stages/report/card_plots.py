"""The main plots of a model, for its card on the hub."""

from greenadapt.progress import Silent
from greenadapt.report.page.blocks import Plot
from greenadapt.stages.lineage import with_sources
from greenadapt.stages.report.page import sections
from greenadapt.stages.session import EXPAND, FINETUNE
from greenadapt.storage.results import Result

FOLDER = "plots"
"""Where they are, beside the card."""
_MAIN = {
    EXPAND: ("pieces-", "precision-by-count", "map-", "words-by-pieces-"),
    FINETUNE: ("scores-", "dev-", "parts-"),
}
"""What the names of a result's main plots begin with, by its stage."""


def card_plots(result: Result, name: str) -> dict[str, Plot]:
    """File → plot: the main ones of an adapted or fine-tuned model, which they call ``name``; else none.

    Raises ``GreenadaptError`` for results that cannot be read.
    """
    stage = result.manifest.stage
    if stage not in _MAIN:
        return {}
    results = with_sources([result.folder], Silent()) if stage == EXPAND else [result]
    plots = [plot for section in sections(results, {result.folder: name}) for plot in section.plots()]
    return {f"{FOLDER}/{plot.name}.png": plot for plot in plots if plot.name.startswith(_MAIN[stage])}
