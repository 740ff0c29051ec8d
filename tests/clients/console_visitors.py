"""Browsers that tests drive request by request, and the install whose console they visit."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from cloudcore.keyring import Keyring, load_keyring
from registry.console.sessions import COOKIE, ConsoleSession, CookieJar
from tests.clients.console_world import Pusher, serve_people
from tests.entrepot import ADMIN, PASSWORD, Install

HOME: Final = "/console/repositories"
_NAMED: Final = re.compile(r"/console/acme/")


class Browser(httpx.Client):
    """A client that follows a redirect only from the id of a repository to its name."""

    def get(self, url: httpx.URL | str, **options: Any) -> httpx.Response:  # noqa: ANN401
        """Return the answer to a GET."""
        answer = super().get(url, **options)
        if answer.status_code == 303 and _NAMED.match(answer.headers["location"]):
            return super().get(answer.headers["location"], **options)
        return answer


@dataclass
class Site:
    """The install, and the key that seals its cookies."""

    install: Install
    pusher: Pusher
    keyring: Keyring

    @property
    def url(self) -> str:
        """Return where it answers."""
        return self.install.url

    @property
    def jar(self) -> CookieJar:
        """Return what opens and seals the cookies of this install."""
        return CookieJar(self.keyring, self.url)

    @contextmanager
    def visitor(self) -> Iterator[Visitor]:
        """Open a browser that has been nowhere yet."""
        with Browser(base_url=self.url, timeout=60) as http:
            yield Visitor(self, http)


@dataclass
class Visitor:
    """A browser that a test drives request by request."""

    site: Site
    http: httpx.Client

    def sign_in(self, to: str = HOME) -> httpx.Response:
        """Sign the admin in, and return the redirect that ends it."""
        self.site.pusher.forget_attempts()
        page = self.http.get("/console/sign-in", params={"to": to}, follow_redirects=True)
        hidden = html.unescape(found_in(r'name="form" value="([^"]*)"', page.text))
        fields = {"form": hidden, "email": ADMIN, "password": PASSWORD}
        sent = self.http.post("/v1/oauth/authorize", data=fields)
        assert sent.status_code == 303, sent.text
        assert sent.headers["location"].startswith(f"{self.site.url}/console/signed-in?code=")
        return self.http.get(sent.headers["location"])

    @property
    def session(self) -> ConsoleSession:
        """Return what the cookie holds."""
        found = self.site.jar.open(COOKIE, self.http.cookies.get(COOKIE), ConsoleSession)
        assert found is not None
        return found

    def keep(self, session: ConsoleSession) -> None:
        """Let the cookie hold this session."""
        sealed = self.site.jar.seal(COOKIE, session)
        value = sealed.partition(";")[0].partition("=")[2]
        self.http.cookies.set(COOKIE, value, domain="127.0.0.1", path="/console")

    def send(self, path: str, **fields: str) -> httpx.Response:
        """Send a form as a page of this session would."""
        return self.http.post(path, data={"csrf": self.session.csrf, **fields})

    def told(self, answer: httpx.Response) -> str:
        """Return the page to which a change has led."""
        assert answer.status_code == 303, answer.text
        return self.http.get(answer.headers["location"]).text


def found_in(pattern: str, page: str) -> str:
    """Return the first group of what a page must contain."""
    found = re.search(pattern, page)
    assert found, page
    return found[1]


@contextmanager
def serve_site(data: Path) -> Iterator[Site]:
    """Make an install and serve it, empty."""
    with serve_people(data) as (install, pusher):
        yield Site(install, pusher, load_keyring(data / "root.key"))
