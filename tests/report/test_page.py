"""The page as a file: complete, escaped, and without anything from elsewhere."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from lxml import etree
from lxml import html as parser

from greenadapt.report.page.blocks import (
    Example,
    Examples,
    Facts,
    Heading,
    Missing,
    Page,
    Paragraph,
    Plot,
    Search,
    Section,
    html,
)
from greenadapt.report.page.charts import Axis, bars, drawn, intervals, lines, scatter, write_plots
from greenadapt.report.page.sections import CorpusData, corpus_section
from greenadapt.report.tables import Table

HOSTILE = "</script><script>alert(1)</script>"
QUOTES = "\"'><img src=x onerror=alert(2)>{{ 7 * 7 }} & \u2028"


def hostile_plots() -> list[Plot]:
    of, by, value = Axis("of", "of"), Axis("by", "by"), Axis("value", "value", ".2f")
    rows = [
        {"of": label, "by": series, "value": 0.5, "low": 0.4, "high": 0.6}
        for label in (HOSTILE, QUOTES)
        for series in (HOSTILE, "b")
    ]
    points = [
        {"label": HOSTILE, "x": i, "y": i, "what": kind, "panel": panel, "named": not i}
        for panel in (QUOTES, "after")
        for kind in ("wordpieces", "added words")
        for i in range(3)
    ]
    return [
        bars("bars", QUOTES, rows, value, of, by),
        lines("lines", HOSTILE, rows, of, value, by),
        intervals("intervals", HOSTILE, rows[:2], of, value, (Axis("low", "from", ".1f"), Axis("high", "to", ".1f"))),
        scatter("scatter", HOSTILE, points, Table(HOSTILE, ["word"], [[QUOTES]], ())),
    ]


def hostile_page() -> Page:
    blocks = [
        Heading(HOSTILE),
        Paragraph(QUOTES),
        Facts([(HOSTILE, QUOTES)]),
        Table(QUOTES, [HOSTILE, QUOTES], [[QUOTES, HOSTILE]]),
        *hostile_plots(),
        Search("near", ["word", QUOTES], [(HOSTILE, [QUOTES, "x"]), ("__proto__", ["y"])], HOSTILE),
        Examples(HOSTILE, [Example(QUOTES, [(HOSTILE, QUOTES)])]),
    ]
    return Page(HOSTILE, QUOTES, [Section("one", HOSTILE, blocks)], [Missing(QUOTES, [HOSTILE])])


@pytest.fixture(scope="module")
def written() -> str:
    return html(hostile_page(), "1.0", drawn)


@pytest.fixture(scope="module")
def parsed(written: str) -> Any:
    return parser.document_fromstring(written)


def test_texts_stay_texts(written: str, parsed: Any) -> None:
    assert "alert(1)" not in "".join(parsed.xpath("//script[not(@type)]/text()"))
    assert len(parsed.xpath("//script")) == 2  # the page's own, and the data of the search
    assert parsed.xpath("//img") == []
    assert not [name for element in parsed.iter(etree.Element) for name in element.attrib if name.startswith("on")]
    assert parsed.xpath("//h3/text()") == [HOSTILE]
    assert parsed.xpath("//title/text()")[0] == HOSTILE
    assert QUOTES in parsed.xpath("//p/text()")
    assert "49" not in parsed.xpath("//header")[0].text_content()
    assert HOSTILE not in written


def test_nothing_turns_the_direction_of_the_page() -> None:
    turned = html(Page("a\u202egnp.exe", "b\u2066", [], []), "1.0", drawn)
    assert not {"\u202e", "\u2066"} & {*turned}
    assert "a\ufffdgnp.exe" in turned


def test_the_data_of_the_search_is_what_was_given(parsed: Any) -> None:
    (data,) = parsed.xpath("//script[@type='application/json']/text()")
    assert json.loads(data) == {"rows": [[HOSTILE, [QUOTES, "x"]], ["__proto__", ["y"]]], "elsewhere": HOSTILE}


def test_nothing_comes_from_elsewhere_and_only_the_page_s_own_script_runs(written: str, parsed: Any) -> None:
    links = [value for name in ("src", "href", "action", "data") for value in parsed.xpath(f"//@{name}")]
    assert links
    assert [link for link in links if not link.startswith("#")] == []
    addresses = set(re.findall(r"https?://[^\s\"'<>)]*", written))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, which nothing opens
    assert "@import" not in written
    (policy,) = parsed.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for name, path in (("script-src", "//script[not(@type)]/text()"), ("style-src", "//style/text()")):
        (text,) = parsed.xpath(path)
        assert rules[name] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    assert parsed.xpath("//*[local-name() != 'svg']/@style") == []


def test_screen_readers_find_their_way(parsed: Any) -> None:
    assert parsed.get("lang") == "en"
    levels = [int(heading.tag[1]) for heading in parsed.xpath("//h1 | //h2 | //h3 | //h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert [len(parsed.xpath(f"//{landmark}")) for landmark in ("header", "nav", "main", "footer")] == [1, 1, 1, 1]
    assert all(table.xpath("caption") and table.xpath("thead//th[@scope='col']") for table in parsed.xpath("//table"))
    pictures = parsed.xpath("//*[local-name()='svg']")
    assert len(pictures) == 4
    assert all(
        picture.getparent().get("role") == "img" and picture.getparent().get("aria-label") for picture in pictures
    )
    assert all(figure.xpath(".//table") for figure in parsed.xpath("//figure"))
    ids = parsed.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in parsed.xpath("//a/@href")} <= set(ids)


def test_marks_have_the_labels_that_hovering_shows() -> None:
    for plot in hostile_plots():
        picture = etree.fromstring(drawn(plot).encode())
        labels = picture.xpath("//*[@role='graphics-symbol']/@aria-label")
        assert len(labels) >= len(plot.spec["data"]["values"]) or plot.name == "intervals"
        assert any(HOSTILE in label for label in labels)


def test_shares_in_tables_are_rounded_half_up() -> None:
    axis = Axis("share", "share", ".1%")
    assert [axis.text(0.0625), axis.text(0.30645), axis.text(None)] == ["6.3%", "30.6%", ""]


def test_labels_on_the_map_do_not_touch() -> None:
    before = {"first": (5, 5), "near": (5.2, 5.1), "later": (5, 8), "outermost": (0, 0), "corner": (10, 10)}
    after = before | {"later": (2, 2), "close": (2.1, 2)}
    points = [
        {"label": label, "x": x, "y": y, "what": "added words", "panel": panel, "named": True}
        for panel, places in (("before", before | {"close": (5, 9)}), ("after", after))
        for label, (x, y) in places.items()
    ]
    picture = etree.fromstring(drawn(scatter("map", "Map", points, Table("Map", ["word"], []))).encode())
    written = [text for text in picture.xpath("//*[local-name()='text']/text()") if text in after]
    assert written == ["first", "later"] * 2


def test_plots_for_papers_have_their_own_colours(tmp_path: Any) -> None:
    [plot, *_] = hostile_plots()
    files = write_plots([plot], tmp_path, tmp_path)
    assert [file.name for file in files] == ["bars.png", "bars.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    svg = files[1].read_text("utf-8")
    assert etree.fromstring(svg.encode()).tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(--" not in svg
    assert "var(--series-1)" in drawn(plot)


def test_frequent_words_are_those_that_say_what_the_text_is_about() -> None:
    words = ["the", ".", "which", "Virus", "don't", "heart", "rate"]
    counts = np.array([90, 80, 70, 60, 50, 40, 30])
    blocks = corpus_section([CorpusData("text", "none", {}, words, counts)]).blocks
    [listed] = [block.text for block in blocks if isinstance(block, Paragraph)]
    assert listed.partition(": ")[2] == "Virus (60 times), heart (40 times), rate (30 times)."
