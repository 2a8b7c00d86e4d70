"""The page in Chromium: predictions show, text stays text, and nothing is on the console."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import NEEDS_CHROMIUM, chromium, fits_a_phone
from tests.support.small_served import LABELS, TEXT, application

pytestmark = NEEDS_CHROMIUM


@contextmanager
def served(app: Any) -> Iterator[str]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="warning", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def address(models: Path) -> Iterator[str]:
    with served(application(models, "ner", "ner-base", "labels", "squad")) as address:
        yield address


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:
    with chromium(address) as driver:
        yield driver


def results(browser: Any, section: str, **fields: str) -> list[str]:
    """Fill a form of the page, send it, and wait: the text of each column of results."""
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, 60)
    form = f"#{section} form"
    wait.until(lambda _: browser.find_element("css selector", form).is_displayed())
    script = "const e = document.querySelector(arguments[0]); e.value = arguments[1]; return e.value"
    for name, value in fields.items():  # send_keys takes no characters beyond the first plane
        browser.execute_script(script, f"{form} [name={name}]", value)
    browser.find_element("css selector", f"{form} button").click()
    wait.until(lambda _: browser.find_element("css selector", f"{form} button").is_enabled())
    columns = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)"
    return [str(text) for text in browser.execute_script(columns, f"#{section} [data-found] > article")]


def test_entities_are_marked_side_by_side_and_markup_is_text(browser: Any, models: Path) -> None:
    import greenadapt

    columns = results(browser, "entities", text=TEXT, view="all")
    assert len(columns) == 4  # three views of the adapted model, one of the base model
    read = """return [...document.querySelectorAll('#entities .read')].map(e => [...e.childNodes].map(
        n => n.nodeName === 'MARK' ? n.firstChild.textContent : n.textContent).join(''))"""
    assert browser.execute_script(read) == [TEXT] * 4
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.firstChild.textContent)"
    for number, view in enumerate(("base", "expanded", "mean"), start=1):
        marks = browser.execute_script(script, f"#entities article:nth-child({number}) mark")
        entities = greenadapt.load(models / "ner", pool=view).predict(TEXT)["entities"]
        assert marks == [entity["text"] for entity in entities], view
        assert marks
    assert browser.execute_script("return document.querySelectorAll('main img').length") == 0


def test_labels_answers_and_neighbours_show(browser: Any) -> None:
    [labels] = results(browser, "labels", text=TEXT)
    assert all(label in labels for label in LABELS)
    text = f"First.\n{TEXT}"
    [answers] = results(browser, "answers", question="what virus", text=text)
    assert answers.count("\n") > 0
    marks = browser.execute_script("return [...document.querySelectorAll('#answers mark')].map(e => e.textContent)")
    bold = browser.execute_script("return [...document.querySelectorAll('#answers strong')].map(e => e.textContent)")
    assert marks == bold
    columns = results(browser, "neighbours", word="tachycardia")
    assert len(columns) == 3
    assert all("coronavirus" in column for column in columns)


@pytest.mark.parametrize("section", ["entities", "labels", "answers", "neighbours"])
def test_an_example_is_tried_with_a_click(browser: Any, section: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_script("document.querySelector(arguments[0]).replaceChildren()", f"#{section} [data-found]")
    browser.find_element("css selector", f"#{section} [data-example]").click()
    results_found = f"#{section} [data-found] > article"
    WebDriverWait(browser, 60).until(lambda _: browser.find_elements("css selector", results_found))
    field = "word" if section == "neighbours" else "text"
    assert browser.execute_script(f"return document.querySelector('#{section} [name={field}]').value")


def test_an_error_is_said_and_the_form_stays_usable(browser: Any) -> None:
    assert results(browser, "neighbours", word="xyzzy") == []
    message = browser.find_element("css selector", "#neighbours [role=status]")
    assert "no row for 'xyzzy'" in message.text
    errors = browser.get_log("browser")  # the browser's own line about the status
    assert [entry["level"] for entry in errors if "404" not in entry["message"]] == []
    assert len(results(browser, "neighbours", word="heart")) == 3


def test_it_fits_a_phone_and_is_reached_by_keyboard(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    assert fits_a_phone(browser)
    browser.refresh()
    results(browser, "neighbours", word="heart")
    browser.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    labelled = "return [...document.querySelectorAll('input, select, textarea')].every(e => e.labels.length)"
    assert browser.execute_script(labelled)
    field = browser.find_element("id", "word")
    field.send_keys(Keys.ENTER)
    assert len(results(browser, "neighbours", word="virus")) == 3


def test_the_console_is_empty_and_all_came_from_the_server(browser: Any, address: str) -> None:
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded
    assert all(name.startswith(f"{address}/") for name in loaded)


def test_the_interface_is_described_as_openapi_says(address: str) -> None:
    import json
    import urllib.request

    from selenium.webdriver.support.ui import WebDriverWait

    with urllib.request.urlopen(f"{address}/openapi.json") as answer:
        stated = json.load(answer)
    with chromium(f"{address}/docs") as browser:
        WebDriverWait(browser, 60).until(lambda _: browser.find_element("css selector", "#objects").is_displayed())
        titles = [element.text for element in browser.find_elements("css selector", "#paths h2")]
        assert titles == [f"{how.upper()} {path}" for path, methods in stated["paths"].items() for how in methods]
        objects = [element.text for element in browser.find_elements("css selector", "#objects h3")]
        assert objects == [*stated["components"]["schemas"]]
        fields = [
            element.text
            for element in browser.find_elements("css selector", "#post-answer table:first-of-type tbody th")
        ]
        assert {*stated["components"]["schemas"]["AnswerRequest"]["properties"]} <= {*fields}
        assert f"curl {address}/predict --json" in browser.find_element("css selector", "#post-predict pre").text
        for link in browser.find_elements("css selector", "a[href*='#']"):
            assert browser.find_elements("css selector", f"[id='{link.get_attribute('href').partition('#')[2]}']")
        assert fits_a_phone(browser)
        assert browser.get_log("browser") == []


def test_the_pages_ask_for_the_token_and_keep_it(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    monkeypatch.setenv("GREENADAPT_SERVE_TOKEN", "0123456789abcdef")
    with served(application(models, "ner")) as address, chromium(f"{address}/docs") as browser:
        wait = WebDriverWait(browser, 60)
        token = browser.find_element("id", "token")
        wait.until(lambda _: token.is_displayed())
        token.send_keys("0123456789abcdef")
        browser.find_element("css selector", "#token-form button").click()
        wait.until(lambda _: browser.find_elements("css selector", "#paths h2"))
        assert not token.is_displayed()
        browser.get(address)
        wait.until(lambda _: browser.find_element("id", "entities").is_displayed())
