from greenadapt.report.tables import loss_tables
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
