"""Plots of texts that nobody would choose: they are drawn, and never end the process."""

from pathlib import Path

import pytest
from lxml import etree

from greenadapt.report.page.charts import Axis, bars, drawn, png_of, write_plots

NASTY = [
    *("a\x1b[31mred", "a\0b", "\x07", "a\nb", "a\r\nb", "a\tb", "a\u2028b", "a\x85b", "a\u202eb", "a\ud800b", "\udfff"),
    *("\ufffe", "\uffff", "\ufeff", "", " ", "x" * 100_000, "<b>&amp;]]>", "\\u001b", "'\"`${1}", "שלום", "\U0001f469"),
    "a" + "\u0301" * 999,
]


@pytest.mark.slow
def test_any_text_is_drawn(tmp_path: Path) -> None:
    rows = [{"label": text, "share": 1 / (1 + i), "by": text[:40]} for i, text in enumerate(NASTY)]
    axes = Axis("share", "y\x1b", ".2f"), Axis("label", "x\0"), Axis("by", "z")
    plot = bars("nasty", f"Title \x1b[2J {NASTY[0]}", rows, *axes)
    picture = drawn(plot)
    etree.fromstring(picture)
    assert not {*picture} & {*map(chr, range(9)), "\x1b", "\u202e", "\u2028", "\ufffe", "\uffff"}
    assert "a\ufffd[31mred" in picture
    assert png_of(plot, 1).startswith(b"\x89PNG")
    [written] = write_plots([plot], None, tmp_path)
    etree.parse(written)


@pytest.mark.slow
def test_texts_that_differ_have_bars_of_their_own() -> None:
    labels = ["a\x1b", "a\x07", "a\ufffd", "x" * 300, "x" * 150 + "y" + "x" * 149]
    rows = [{"label": label, "share": 0.5 + i / 10, "by": "all"} for i, label in enumerate(labels)]
    plot = bars("alike", "Alike", rows, Axis("share", "y", ".2f"), Axis("label", "x"), Axis("by", "z"))
    tips = etree.fromstring(drawn(plot)).xpath("//*[@role='graphics-symbol']/@aria-label")
    assert len({*tips}) == len(labels)
