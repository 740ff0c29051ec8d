"""Headless Chromium, and the forms that a person fills in there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from tests.tools import require_tool

_UNUSED: Final = (
    "BackForwardCache,ProactivelySwapBrowsingInstance,RenderDocument"
    ",SpareRendererForSitePerProcess,MediaRouter,OptimizationHints,Translate"
)
OPTIONS: Final = (
    *("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--in-process-gpu"),
    f"--disable-features={_UNUSED}",
)
"""Features that only a person needs (going back, spare processes) are off, which halves the time
that a page takes to load."""


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    """Return a browser that keeps what its console is told."""
    options = webdriver.ChromeOptions()
    options.binary_location = require_tool("chromium")
    for option in ("--headless=new", *OPTIONS):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(require_tool("chromedriver")))
    yield driver
    driver.quit()


def fill(browser: webdriver.Chrome, **fields: str) -> None:
    """Fill the fields of the page in, send it, and wait for the next one."""
    for name, text in fields.items():
        field = browser.find_element(By.NAME, name)
        field.clear()
        field.send_keys(text)
    form = browser.find_element(By.TAG_NAME, "form")
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    WebDriverWait(browser, 30).until(lambda _: is_gone(form))
    WebDriverWait(browser, 30).until(presence_of_element_located((By.TAG_NAME, "h1")))


def is_gone(element: WebElement) -> bool:
    """Tell whether the page that an element was on has made way for another."""
    try:
        element.is_enabled()
    except WebDriverException:
        return True
    return False


def title(browser: webdriver.Chrome) -> str:
    """Return the heading of the page."""
    return browser.find_element(By.TAG_NAME, "h1").text


def check_quiet(browser: webdriver.Chrome) -> None:
    """Check that the pages broke none of their own rules: the browser tells of each breach."""
    log = browser.get_log("browser")  # type: ignore[no-untyped-call]
    told = [entry["message"] for entry in log]
    unexpected = [
        words for words in told if "favicon.ico" not in words and "status of 40" not in words
    ]
    assert unexpected == []
