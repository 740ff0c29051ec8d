"""Sign requests as container clients do: with a bearer for each repository."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

import httpx

_PATH: Final = re.compile(r"/v2/(.+)/(?:blobs/uploads/.*|(?:blobs|manifests|tags|referrers)/[^/]+)")


class BearerAuth(httpx.Auth):
    """Fetches a bearer for what a request needs, with a login, once for each repository."""

    requires_response_body = True

    def __init__(self, url: str, password: str) -> None:
        """Log in to the registry at `url`."""
        self._tokens = f"{url}/v2/token"
        self._login = httpx.BasicAuth("token", password)
        self._bearers: dict[tuple[str, ...], str] = {}

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the request with its bearer, which is asked for first if it is new."""
        scopes = tuple(_scopes(request.url))
        if scopes not in self._bearers:
            asking = httpx.Request("GET", self._tokens, params={"scope": scopes})
            answer = yield next(self._login.auth_flow(asking))
            self._bearers[scopes] = f"Bearer {answer.json()['token']}"
        request.headers["authorization"] = self._bearers[scopes]
        yield request


def _scopes(url: httpx.URL) -> list[str]:
    """Return the scopes that a request needs, or none for a path that is no endpoint."""
    if url.path == "/v2/_catalog":
        return ["registry:catalog:*"]
    found = _PATH.fullmatch(url.path)
    if found is None:
        return []
    mounted = [f"repository:{url.params['from']}:pull"] if "from" in url.params else []
    return [f"repository:{found[1]}:pull,push,delete", *mounted]
