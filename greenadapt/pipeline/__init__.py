"""One function a stage, folder in → folder out: where reading, algorithm and writing meet."""

from greenadapt.pipeline.adapt import Plan, adapt
from greenadapt.pipeline.align import align
from greenadapt.pipeline.corpora import list_corpora, show_corpus
from greenadapt.pipeline.costs import paper_costs, result_costs, stage_costs
from greenadapt.pipeline.expand import expand
from greenadapt.pipeline.neighbours import neighbours
from greenadapt.pipeline.prepare import TextOptions, prepare
from greenadapt.pipeline.session import Session
from greenadapt.pipeline.vectors import export_vectors
from greenadapt.pipeline.w2v import w2v

__all__ = [
    "Plan",
    "Session",
    "TextOptions",
    "adapt",
    "align",
    "expand",
    "export_vectors",
    "list_corpora",
    "neighbours",
    "paper_costs",
    "prepare",
    "result_costs",
    "show_corpus",
    "stage_costs",
    "w2v",
]
