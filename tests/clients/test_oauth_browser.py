"""A person in a browser: PKCE through the real page in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from authlib.integrations.requests_client import (  # type: ignore[import-untyped]
    OAuth2Session as AuthlibSession,
)
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from tests.clients.oauth_server import EMAIL, NEWCOMER, OUT_OF_BAND, OAuthServer, serve_oauth
from tests.integration.oauth_world import PASSWORD
from tests.tools import require_tool

VERIFIER = "b" * 64
MINE = "a password of my own"


@pytest.fixture
def server(sqlite_database: str) -> Iterator[OAuthServer]:
    with serve_oauth(sqlite_database) as served:
        yield served


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = require_tool("chromium")
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
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
    try:
        element.is_enabled()
    except WebDriverException:
        return True
    return False


def title(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "h1").text


@pytest.mark.client("chromium")
def test_a_person_signs_in_and_carries_the_code(
    server: OAuthServer, browser: webdriver.Chrome
) -> None:
    with AuthlibSession(
        "cli",
        token_endpoint_auth_method="none",
        redirect_uri=OUT_OF_BAND,
        code_challenge_method="S256",
    ) as client:
        url, _ = client.create_authorization_url(server.authorize_url, code_verifier=VERIFIER)
        browser.get(url)
        assert title(browser) == "Sign in"
        fill(browser, email=EMAIL, password="not the password")
        alert = browser.find_element(By.CSS_SELECTOR, "[role=alert]")
        assert alert.text == "The e-mail address or the password is wrong."
        fill(browser, password=PASSWORD)  # the address is still there
        assert title(browser) == "Your code"
        client.fetch_token(
            server.token_url,
            grant_type="authorization_code",
            code=browser.find_element(By.ID, "code").text,
            code_verifier=VERIFIER,
        )
        assert client.get(f"{server.url}/v1/whoami").json()["kind"] == "user"
    check_quiet(browser)


@pytest.mark.client("chromium")
def test_a_newcomer_chooses_a_password_first(
    server: OAuthServer, browser: webdriver.Chrome
) -> None:
    with AuthlibSession("cli", redirect_uri=OUT_OF_BAND, code_challenge_method="S256") as client:
        url, _ = client.create_authorization_url(server.authorize_url, code_verifier=VERIFIER)
    browser.get(url)
    fill(browser, email=NEWCOMER, password=PASSWORD)
    assert title(browser) == "Choose a password"
    fill(browser, new_password=MINE, repeated_password=MINE + "!")
    assert browser.find_element(By.CSS_SELECTOR, "[role=alert]").text == "The two passwords differ."
    fill(browser, new_password=MINE, repeated_password=MINE)
    assert title(browser) == "Your code"
    browser.get(url)
    fill(browser, email=NEWCOMER, password=MINE)
    assert title(browser) == "Your code"
    check_quiet(browser)


def check_quiet(browser: webdriver.Chrome) -> None:
    """Check that the pages broke none of their own rules: the browser tells of each breach."""
    log = browser.get_log("browser")  # type: ignore[no-untyped-call]
    told = [entry["message"] for entry in log]
    unexpected = [
        words for words in told if "favicon.ico" not in words and "status of 40" not in words
    ]
    assert unexpected == []
