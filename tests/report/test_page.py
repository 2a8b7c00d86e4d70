"""The page as a file: complete, escaped, and without anything from elsewhere."""

import re
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from lxml import etree
from lxml import html as parser

from greenadapt.report.page import (
    Section,
    TaskGroup,
    TunedModel,
    chart_by_count,
    chart_map,
    compare_models,
    cost_section,
    html,
)
from greenadapt.report.tables import Table

HOSTILE = "</script><script>alert(1)</script>"
QUOTES = "\"'><img src=x onerror=alert(2)>{{ 7 * 7 }} & \u2028"
NASTY = [
    *("a\x1b[31mred", "a\0b", "\x07", "a\nb", "a\r\nb", "a\tb", "a\u2028b", "a\x85b", "a\u202eb", "a\ud800b", "\udfff"),
    *("\ufffe", "\uffff", "\ufeff", "", " ", "x" * 100_000, "<b>&amp;]]>", "\\u001b", "'\"`${1}", "שלום", "\U0001f469"),
    "a" + "\u0301" * 999,
]
COST = {
    "seconds": 1.5, "cpu_seconds": 1.0, "peak_memory_bytes": 10**8, "energy_kwh": 1e-5, "co2_kg": 1e-6,
    "usd_low": 0.0, "usd_high": 0.1, "energy_source": QUOTES, "co2_source": HOSTILE,
}  # fmt: skip


def hostile_sections() -> list[Section]:
    scores = {"main": "f1", "mean": {"f1": 0.5}, "seeds": [{"seed": 0}]}
    models = [TunedModel(HOSTILE, scores, 0.4, 0.6), TunedModel(QUOTES, scores, 0.4, 0.6, (0.1, 0.0, 0.2))]
    points = [
        {"label": label, "x": i, "y": i, "what": what, "panel": panel, "named": True}
        for panel in (QUOTES, "after")
        for what in ("wordpieces", "added words")
        for i, label in enumerate([HOSTILE, *NASTY])
    ]
    bars = [{"band": band, "share": 0.5, "by": by} for band in (HOSTILE, QUOTES) for by in (HOSTILE, "b")]
    return [
        Section("gain", HOSTILE, compare_models(TaskGroup(QUOTES, models, HOSTILE, [QUOTES]))),
        Section("rows", "Rows", [QUOTES, chart_by_count(bars), chart_map(points, 0.5), Table(HOSTILE, [QUOTES], [])]),
    ]


@pytest.fixture(scope="module")
def written() -> str:
    return html(HOSTILE, hostile_sections(), "1.0")


@pytest.fixture(scope="module")
def parsed(written: str) -> Any:
    return parser.document_fromstring(written)


def test_texts_stay_texts(written: str, parsed: Any) -> None:
    assert parsed.xpath("//script | //img") == []
    assert not [name for element in parsed.iter(etree.Element) for name in element.attrib if name.startswith("on")]
    assert parsed.xpath("//title/text()")[0] == HOSTILE
    assert QUOTES in parsed.xpath("//p/text()")
    assert HOSTILE not in written
    assert not {*written} & {*map(chr, range(9)), "\x1b", "\u202e", "\ufffe", "\uffff"}


def test_nothing_comes_from_elsewhere_and_no_script_runs(written: str, parsed: Any) -> None:
    links = [value for name in ("src", "href", "action", "data") for value in parsed.xpath(f"//@{name}")]
    assert links
    assert [link for link in links if not link.startswith("#")] == []
    addresses = set(re.findall(r"https?://[^\s\"'<>)]*", written))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, which nothing opens
    assert "@import" not in written
    (policy,) = parsed.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    (style,) = parsed.xpath("//style/text()")
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'"
    assert parsed.xpath("//*[local-name() != 'svg']/@style") == []


def test_screen_readers_find_their_way(parsed: Any) -> None:
    levels = [int(heading.tag[1]) for heading in parsed.xpath("//h1 | //h2 | //h3")]
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert [len(parsed.xpath(f"//{landmark}")) for landmark in ("header", "nav", "main", "footer")] == [1, 1, 1, 1]
    assert all(table.xpath("caption") and table.xpath("thead//th[@scope='col']") for table in parsed.xpath("//table"))
    pictures = parsed.xpath("//*[local-name()='svg']")
    assert len(pictures) == 3
    assert all(
        picture.getparent().get("role") == "img" and picture.getparent().get("aria-label") for picture in pictures
    )
    ids = parsed.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in parsed.xpath("//a/@href")} <= set(ids)


def test_the_cost_of_results_is_that_of_the_manifests() -> None:
    from greenadapt.report.page import StageData

    stages = [StageData("corpus", None, COST), StageData("w2v", QUOTES, COST)]
    chart, table, commands, _ = cost_section(stages).blocks
    assert isinstance(table, Table)
    assert isinstance(commands, Table)
    assert [row[:2] for row in table.rows] == [["corpus", "1.5"], ["w2v", "1.5"], ["all", "3.0"]]
    assert commands.rows == [["corpus", "not known"], ["w2v", QUOTES]]
    assert [value["seconds"] for value in chart.spec["data"]["values"]] == [1.5, 1.5]  # type: ignore[union-attr]
