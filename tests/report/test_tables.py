from typing import Any

from greenadapt.report.page.blocks import Plot, Shown
from greenadapt.report.page.sections import TaskGroup, TunedModel, tasks_section
from greenadapt.report.tables import assessment, loss_tables
from tests.support.small_texts import MEASURED


def test_each_text_and_tokenization_has_a_row() -> None:
    (table,) = loss_tables({"losses": {"heldout": MEASURED, "general": MEASURED}})
    assert table.columns == ["text", "read by", "inputs", "masked", "before", "after", "change"]
    assert table.rows[0] == ["held-out text", "the base tokenizer", "2,000", "12,345", "6.5000", "2.2500", "-4.2500"]
    assert table.rows[1] == ["held-out text", "the expanded tokenizer", "2,000", "40", "7.2500", "7.5000", "+0.2500"]
    assert [row[0] for row in table.rows[2:]] == ["general text"] * 2


def test_what_was_not_measured() -> None:
    assert loss_tables({"losses": {}}) == []
    nothing = {"inputs": 1, "targets": {"base": 0}, "before": {"base": None}, "after": {"base": None}}
    (table,) = loss_tables({"losses": {"heldout": nothing}})
    assert table.rows == [["held-out text", "the base tokenizer", "1", "0", "", "", ""]]


def _validated(verdict: str, *rows: tuple[float, float, float]) -> dict[str, Any]:
    """What cross-validation found: difference and interval of both tokenizations, base and expanded."""
    made: list[dict[str, Any]] = [{"read_by": "base model", "score": 0.5}]
    for view, (difference, low, high) in zip(("mean", "base", "expanded"), rows, strict=True):
        made.append({"read_by": view, "score": 0.5 + difference, "difference": difference, "low": low, "high": high})
    return {"main": "f1", "verdict": verdict, "rows": made}


def test_the_advice_of_cross_validation() -> None:
    zero, sure = (0.0, -0.01, 0.01), (0.018, 0.004, 0.032)
    [helps] = assessment(_validated("helps", sure, zero, zero))
    assert "helps: +1.8 F1 (+0.4 to +3.2)" in helps
    [unclear] = assessment(_validated("unclear", zero, zero, zero))
    assert "keep the base model" in unclear
    [hurts] = assessment(_validated("hurts", (-0.02, -0.03, -0.01), zero, zero))
    assert "-2.0 F1 (-3.0 to -1.0)" in hurts
    assert "--min-count" in hurts
    _, single = assessment(_validated("unclear", zero, sure, (0.02, 0.01, 0.03)))
    assert "--pool expanded" in single
    untrained = _validated("unclear", zero, zero, zero)
    untrained["rows"] = [row | {"score": 0.0} for row in untrained["rows"]]
    [advice] = assessment(untrained)
    assert "--epochs" in advice


def test_types_that_only_some_seeds_predict_are_in_the_table_and_in_the_plot() -> None:
    of_type = {name: {"precision": f1, "recall": f1, "f1": f1, "support": 4} for name, f1 in (("A", 0.5), ("B", 1.0))}
    sets = [{"f1": 0.5, "by_type": {"A": of_type["A"]}}, {"f1": 0.75, "by_type": {**of_type, "A": of_type["B"]}}]
    seeds = [{"seed": number, "test": each} for number, each in enumerate(sets)]
    scores = {"task": "ner", "main": "f1", "pool": "mean", "seeds": seeds, "mean": {"f1": 0.625}}
    blocks = tasks_section([TaskGroup("NER", "1", [TunedModel("model", scores, [])])]).blocks
    (rows,) = (block.shown.table.rows for block in blocks if isinstance(block, Plot) and block.name.startswith("parts"))
    assert [(row[0], row[-1]) for row in rows] == [("A", "75.00%"), ("B", "100.00%")]
    (table,) = (block.table for block in blocks if isinstance(block, Shown) and "by type" in block.table.title)
    assert [row[0] for row in table.rows] == ["A", "B"]
