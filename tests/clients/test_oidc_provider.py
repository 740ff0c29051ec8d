"""A certified OpenID Connect provider, oidc-provider of Node, with pages for a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlencode, urljoin

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from cloudcore.clock import system_clock, uuid7
from tests.clients.chromium import fill, title
from tests.clients.node_provider import SCRIPT
from tests.clients.oauth_server import serve_oauth
from tests.clients.programs import daemon
from tests.inprocess import ManualClock
from tests.integration.oauth_world import authorization_query
from tests.integration.provider_world import (
    AUTHORIZE,
    ProviderWorld,
    add_provider,
    complaint,
    query_of,
    trust_provider,
)
from tests.integration.served_world import URL, open_served
from tests.postgresql import free_port
from tests.scripted_provider import SECRET
from tests.tools import require_tool

CALLBACK: Final = f"{URL}{AUTHORIZE}/callback"
_ACTION: Final = re.compile(r'<form[^>]* action="([^"]*)"')
_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)"')


@dataclass
class NodeProvider:
    """The provider's process, and the file with its people."""

    url: str
    people: Path
    login: str = ""

    def know(self, **people: dict[str, Any]) -> None:
        """Replace the claims of the provider's people, by login."""
        self.people.write_text(json.dumps(people))

    def authorize(self, url: str) -> dict[str, str]:
        """Sign `login` in on the provider's pages; return what the browser brings back."""
        with httpx.Client(timeout=30) as browser:
            answer = browser.get(url)
            for _ in range(12):
                if answer.is_redirect:
                    to = urljoin(str(answer.url), answer.headers["location"])
                    if to.startswith(CALLBACK):
                        return query_of(to)
                    answer = browser.get(to)
                    continue
                action = _ACTION.search(answer.text)
                assert action is not None, answer.text
                filled = dict(_HIDDEN.findall(answer.text))
                if 'name="login"' in answer.text:
                    filled |= {"login": self.login, "password": "any"}
                answer = browser.post(urljoin(str(answer.url), unescape(action[1])), data=filled)
        raise AssertionError("the provider's pages have no end")


@contextmanager
def serving(library: Path, folder: Path, url: str, callback: str) -> Iterator[NodeProvider]:
    """Run the provider at a loopback URL meanwhile."""
    provider = NodeProvider(url, folder / "people.json")
    provider.know()

    def is_ready() -> bool:
        try:
            return httpx.get(f"{provider.url}/.well-known/openid-configuration").is_success
        except httpx.HTTPError:
            return False

    command = (require_tool("node"), SCRIPT, library, provider.url, callback, SECRET)
    with daemon(*command, provider.people, log=folder / "node.log", ready=is_ready):
        yield provider


@pytest.mark.client("oidc-provider")
async def test_people_of_a_certified_provider_sign_in(library: Path, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    settings = {"founders": "nobody", "oidc_internal_origins": url}
    clock = ManualClock(system_clock())
    async with open_served(tmp_path / "data", clock=clock, **settings) as served:
        row = await add_provider(served, url, scopes=["email", "groups"])
        with serving(library, tmp_path, url, row["redirect_uri"]) as provider:
            world = ProviderWorld(served, cast("Any", provider), row)
            await world.assign_group("devs")
            await trust_provider(world, served.acme.ids["/v1/roles/{}"])
            zoe = {"email": "zoe@example.org", "email_verified": True, "groups": ["devs"]}
            provider.know(zoe=zoe, eve={**zoe, "email_verified": False})

            provider.login = "zoe"
            first = await world.redeem(await world.sign_in())
            assert (first["email"], first["roles"]) == ("zoe@example.org", ["role"])
            provider.know(zoe={**zoe, "groups": []})
            again = await world.redeem(await world.sign_in())
            assert (again["id"], again["roles"]) == (first["id"], [])

            provider.know(eve={**zoe, "email_verified": False})
            provider.login = "eve"
            assert "names no verified e-mail address" in complaint(await world.sign_in())

            provider.login = "zoe"
            provider.know(zoe=zoe)
            answer = provider.authorize(await world.leave())
            wrong = await world.come_back({**answer, "code": "another"})
            assert "invalid_grant" in complaint(wrong)
            refused = provider_refusal(await world.leave())
            assert "it refused: access_denied" in complaint(await world.come_back(refused))


@pytest.mark.client("chromium")
def test_a_browser_goes_to_the_provider_and_back(
    library: Path, tmp_path: Path, sqlite_database: str, browser: webdriver.Chrome
) -> None:
    """The provider is another site (`localhost`), from which only some cookies come back."""
    port, provider_id = free_port(), uuid7()
    callback = f"http://127.0.0.1:{port}{AUTHORIZE}/callback/{provider_id}"
    url = f"http://localhost:{free_port()}"
    with (
        serving(library, tmp_path, url, callback) as provider,
        serve_oauth(sqlite_database, issuer=url, port=port, provider_id=provider_id) as server,
    ):
        provider.know(zoe={"email": "zoe@example.org", "email_verified": True})
        browser.get(f"{server.authorize_url}?{urlencode(authorization_query())}")
        choice = browser.find_element(By.CSS_SELECTOR, "a.provider")
        assert choice.text.split("\n")[0] == "Sign in with Acme Login"
        choice.click()
        WebDriverWait(browser, 30).until(presence_of_element_located((By.NAME, "login")))
        assert browser.current_url.startswith(provider.url)
        fill(browser, login="zoe", password="any")
        fill(browser)  # the provider asks whether Entrepot may know
        WebDriverWait(browser, 30).until(presence_of_element_located((By.ID, "code")))
        assert title(browser) == "Your code"
        assert browser.current_url.startswith(callback)


def provider_refusal(url: str) -> dict[str, str]:
    """Leave the provider's page by its link back, as a person who changed his mind."""
    with httpx.Client(follow_redirects=True, timeout=30) as browser:
        page = browser.get(url)
        (abort,) = re.findall(r'href="([^"]*/abort)"', page.text)
        browser.follow_redirects = False
        answer = browser.get(urljoin(str(page.url), unescape(abort)))
        while not answer.headers["location"].startswith(CALLBACK):
            answer = browser.get(urljoin(str(answer.url), answer.headers["location"]))
    return query_of(answer.headers["location"])
