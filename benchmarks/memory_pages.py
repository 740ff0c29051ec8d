"""A person who signs in and reads pages of the console, one after the other."""

from __future__ import annotations

import html
import random
import re
import threading
from typing import Final

import httpx

from benchmarks.servers import Server
from benchmarks.signed_in import ADMIN
from benchmarks.wire import ExchangeFailedError

PAGES_READ: Final = 200
"""Pages that a person reads before signing in anew."""
_HOME: Final = "/console/repositories"
_PASSWORD: Final = "a password that was chosen"
_HIDDEN: Final = re.compile(r'name="form" value="([^"]*)"')
_LINK: Final = re.compile(r'href="(/console/[^"#]*)"')
_KNOWN_PAGES: Final = 400


class Reader:
    """Follows links between pages that change nothing; one person at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None
        self._is_new = True
        self._read = 0
        self._known = [_HOME]

    def read(self, chosen: random.Random) -> None:
        """Read one page; sign in first if that is needed."""
        with self._lock:
            if self._http is None or self._read >= PAGES_READ:
                self._sign_in()
            assert self._http is not None
            page = self._http.get(chosen.choice(self._known))
            self._read += 1
            # What is deleted meanwhile has no page any more.
            if page.status_code not in (200, 404):
                raise ExchangeFailedError(f"{page.url}: {page.status_code} {page.text[:200]}")
            found = {html.unescape(link) for link in _LINK.findall(page.text)} - set(self._known)
            safe = sorted(link for link in found if "sign-out" not in link)
            self._known += safe[: _KNOWN_PAGES - len(self._known)]

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._http is not None:
                self._http.close()
                self._http = None

    def _sign_in(self) -> None:
        if self._http is not None:
            self._http.close()
        http = httpx.Client(base_url=self._server.url, timeout=60, follow_redirects=True)
        self._http, self._read = http, 0
        page = http.get("/console/sign-in", params={"to": _HOME})
        password = self._server.one_time_password if self._is_new else _PASSWORD
        fields = {"email": ADMIN, "password": password}
        page = self._send(page, fields)
        if self._is_new:
            page = self._send(page, {"new_password": _PASSWORD, "repeated_password": _PASSWORD})
            self._is_new = False
        if page.status_code != 200 or not page.url.path.startswith("/console"):
            raise ExchangeFailedError(f"the sign-in ended at {page.url}: {page.status_code}")

    def _send(self, page: httpx.Response, fields: dict[str, str]) -> httpx.Response:
        assert self._http is not None
        found = _HIDDEN.search(page.text)
        if found is None:
            raise ExchangeFailedError(f"no form at {page.url}: {page.text[:200]}")
        form = {"form": html.unescape(found[1]), **fields}
        return self._http.post("/v1/oauth/authorize", data=form)
