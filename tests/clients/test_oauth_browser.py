"""A person in a browser: PKCE through the real page in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from authlib.integrations.requests_client import (  # type: ignore[import-untyped]
    OAuth2Session as AuthlibSession,
)
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.clients.chromium import check_quiet, fill, title
from tests.clients.oauth_server import EMAIL, NEWCOMER, OUT_OF_BAND, OAuthServer, serve_oauth
from tests.integration.oauth_world import PASSWORD

VERIFIER = "b" * 64
MINE = "a password of my own"


@pytest.fixture
def server(sqlite_database: str) -> Iterator[OAuthServer]:
    with serve_oauth(sqlite_database) as served:
        yield served


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
