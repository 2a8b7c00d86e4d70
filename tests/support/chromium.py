"""Pages opened in Chromium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
NEEDS_CHROMIUM = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="NOT TESTED: the page in a browser, which needs chromium and chromedriver"
    ),
]


@contextmanager
def chromium(address: str) -> Iterator[Any]:
    """A driver of Chromium that shows ``address`` and keeps what is on the console."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="NOT TESTED: the page in a browser, without selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.get(address)
        yield driver
    finally:
        driver.quit()


def fits_a_phone(browser: Any) -> bool:
    """Whether the page is no wider than a screen of 390 pixels."""
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    width: int = browser.execute_script("return document.documentElement.scrollWidth")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return width <= 390
