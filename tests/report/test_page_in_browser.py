"""The page in Chromium: the search, the colours, the keyboard, and nothing on the console."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenadapt.report.page.blocks import html
from greenadapt.report.page.charts import drawn
from tests.report.test_page import HOSTILE, QUOTES, hostile_page
from tests.support.chromium import NEEDS_CHROMIUM, chromium, fits_a_phone

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(html(hostile_page(), "1.0", drawn), "utf-8")
    with chromium(file.as_uri()) as driver:
        yield driver


def typed(browser: Any, word: str) -> tuple[str, list[list[str]]]:
    """What the page says once ``word`` was typed into the search, and its table."""
    field = browser.find_element("css selector", "input[type=search]")
    field.clear()
    field.send_keys(word)
    rows = "return [...document.querySelectorAll('#near-found tr')].map(r => [...r.cells].map(c => c.textContent))"
    return browser.find_element("id", "near-said").text, browser.execute_script(rows)


def colours(browser: Any) -> list[str]:
    script = """const of = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
        return [of('body', 'backgroundColor'), of('body', 'color'), of('svg text', 'fill'),
            of('[role=graphics-symbol]', 'fill')]"""
    return [str(colour) for colour in browser.execute_script(script)]


def test_the_search_finds_words_as_text(browser: Any) -> None:
    assert typed(browser, HOSTILE) == ("", [[HOSTILE, f"{QUOTES}, x", ""][:2]])
    assert typed(browser, "__proto__")[1] == [["__proto__", "y"]]
    message, rows = typed(browser, "nothing")
    assert "not among the 2 words" in message
    assert HOSTILE in message
    assert rows == []
    assert typed(browser, "__pr")[1] == [["__proto__", "y"]]
    assert len(typed(browser, "x\b")[1]) == 2


def test_light_and_dark_by_the_system_and_by_hand(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    by_scheme = {}
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        by_scheme[scheme] = colours(browser)
    assert all(light != dark for light, dark in zip(*by_scheme.values(), strict=True))
    field = browser.find_element("id", "scheme")
    field.send_keys(Keys.ARROW_DOWN)
    assert colours(browser) == by_scheme["light"]
    field.send_keys(Keys.ARROW_DOWN)
    assert colours(browser) == by_scheme["dark"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert colours(browser) == by_scheme["light"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": []})


def test_hovering_shows_the_word_of_a_mark(browser: Any) -> None:
    webdriver = pytest.importorskip("selenium.webdriver")
    mark = browser.find_elements("css selector", "svg [role=graphics-symbol]")[0]
    webdriver.ActionChains(browser).move_to_element(mark).perform()
    tip = browser.find_element("id", "tip")
    assert tip.is_displayed()
    assert tip.text == mark.get_attribute("aria-label")


def test_everything_can_be_reached_with_the_keyboard(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.refresh()
    reached = []
    script = "const e = document.activeElement; return [e.tagName, getComputedStyle(e).outlineStyle, e.id, e.className]"
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        tag, outline, name, kind = browser.execute_script(script)
        if tag == "BODY":
            break
        assert outline != "none", (tag, name)
        reached.append(kind or name or tag)
    assert reached[0] == "skip"
    assert {"scheme", "near-word", "scroll", "SUMMARY", "A"} <= set(reached)
    assert reached.count("SUMMARY") == 4


def test_it_fits_a_phone(browser: Any) -> None:
    assert fits_a_phone(browser)


def test_the_console_is_empty_and_nothing_was_loaded(browser: Any) -> None:
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded == []
    assert Path(browser.current_url.removeprefix("file://")).is_file()
