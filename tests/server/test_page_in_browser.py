"""The page in Chromium: predictions show, text stays text, and nothing is on the console."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import greenadapt
from greenadapt.config import ReadingOptions
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


def results(browser: Any, **fields: str) -> str:
    """Fill the form, send it, and wait: the text of the results."""
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, 60)
    wait.until(lambda _: browser.find_element("id", "ask").is_displayed())
    # send_keys takes no characters beyond the first plane
    script = (
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('change'))"
    )
    for name, value in fields.items():
        browser.execute_script(script, name, value)
    browser.execute_script("document.getElementById('results').replaceChildren()")
    browser.find_element("css selector", "#ask button").click()
    wait.until(lambda _: browser.find_elements("css selector", "#results h2") or "wrong" in status(browser))
    return str(browser.find_element("id", "results").text)


def status(browser: Any) -> str:
    return str(browser.find_element("id", "status").get_attribute("class"))


def test_predictions_show_and_markup_is_text(models: Path) -> None:
    with served(application(models, "ner", "labels", "squad")) as address, chromium(address) as browser:
        shown = results(browser, model="ner", text=TEXT, view="all")
        assert browser.find_elements("css selector", "#results h2, #results mark")
        assert "<img src=x onerror=alert(1)>" in shown
        for view in ("mean", "base", "expanded"):
            entities = greenadapt.load(models / "ner", reading=ReadingOptions(view)).predict([TEXT])[0]["entities"]
            assert all(f"{entity['text']} {entity['type']} {entity['score']:.2f}" in shown for entity in entities)
        assert all(label in results(browser, model="labels", text="a virus", view="") for label in LABELS)
        [best] = greenadapt.load(models / "squad").answer("what virus", TEXT, top=1)
        assert best["answer"] in results(browser, model="squad", text=TEXT, question="what virus")
        assert fits_a_phone(browser)
        assert browser.get_log("browser") == []
        loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        assert loaded
        assert all(name.startswith(f"{address}/") for name in loaded)


def test_the_page_asks_for_the_token(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    monkeypatch.setenv("GREENADAPT_SERVE_TOKEN", "0123456789abcdef")
    with served(application(models, "ner")) as address, chromium(address) as browser:
        token = browser.find_element("id", "token")
        WebDriverWait(browser, 60).until(lambda _: token.is_displayed())
        token.send_keys("0123456789abcdef")
        browser.find_element("css selector", "#token-form button").click()
        WebDriverWait(browser, 60).until(lambda _: browser.find_element("id", "ask").is_displayed())
        assert not token.is_displayed()
