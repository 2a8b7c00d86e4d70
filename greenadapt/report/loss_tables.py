"""The losses of a pre-trained model as tables of text, for the terminal and for the model card."""

from typing import Any

from greenadapt.report.score_tables import Table

Json = dict[str, Any]
SETS = {"heldout": "held-out text", "general": "general text"}


def loss_tables(scores: Json) -> list[Table]:
    """The table of a ``scores.json``: the loss on every text and by each tokenization, before and after training.

    None where nothing was measured.
    """
    rows = []
    for name, measured in scores["losses"].items():
        for view, before in measured["before"].items():
            after = measured["after"][view]
            change = "" if before is None or after is None else f"{after - before:+.4f}"
            numbers = [f"{measured['inputs']:,}", f"{measured['targets'][view]:,}", _loss(before), _loss(after), change]
            rows.append([SETS[name], f"the {view} tokenizer", *numbers])
    title = "masked language modelling: mean loss of a masked piece, in nats"
    columns = ["text", "read by", "inputs", "masked", "before", "after", "change"]
    return [Table(title, columns, rows)] if rows else []


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"
