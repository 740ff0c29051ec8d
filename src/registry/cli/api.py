"""The few calls the command makes to a registry's identity endpoints."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

_TIMEOUT_SECONDS = 30


class ApiError(Exception):
    """The registry refused, or cannot be reached; the text says which and what to do."""


class Api:
    """One registry, by its base URL. Redirects are not followed: credentials go to one host."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ApiError(f"a registry's URL begins with https:// (or http://), not {url!r}")
        self.url = url.rstrip("/")
        self._opener = urllib.request.build_opener(_NoRedirects)

    def post_form(
        self, path: str, fields: Mapping[str, str], basic: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        """Post a form and return the JSON answer (an empty one is ``{}``)."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if basic is not None:
            pair = base64.b64encode(f"{basic[0]}:{basic[1]}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        return self._post(path, urlencode(fields).encode(), headers)

    def post_json(self, path: str, document: object, access_token: str) -> dict[str, Any]:
        """Post JSON with a bearer token and return the JSON answer."""
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {access_token}",
        }
        return self._post(path, msgspec.json.encode(document), headers)

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            self.url + path, data=body, headers=headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(_refusal(error.code, error.read())) from None
        except OSError as error:
            raise ApiError(f"cannot reach {self.url}: {error}") from None
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _refusal(status: int, body: bytes) -> str:
    """Return the registry's own words for a refusal, in either of its two shapes."""
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return f"the registry answered {status}"
    error = document.get("error")
    if isinstance(error, dict):
        return f"{error.get('message', status)} ({error.get('code', status)})"
    return str(document.get("error_description") or error or f"the registry answered {status}")
