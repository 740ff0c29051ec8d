"""Ask identity providers over HTTP: few seconds, few bytes, no redirect, vetted addresses only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from cloudcore.outbound import destinations
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.failures import RequestFailed
from cloudcore.outbound.http_client import Answer, HttpClient
from cloudcore.outbound.names import Resolve, resolve

MAX_URL: Final = 1000


def allowed_providers(internal_origins: Sequence[str]) -> Allowed:
    """Return what may be asked besides the public internet: the origins that an operator lists."""
    return Allowed("ENTREPOT_OIDC_INTERNAL_ORIGINS", tuple(internal_origins))


def check_url(url: str, internal_origins: Sequence[str]) -> None:
    """Check a URL that is asked later, before its name is resolved.

    Raises:
        ValueError: with the reason as a sentence.

    """
    if len(url) > MAX_URL:
        raise ValueError(f"a URL has at most {MAX_URL} characters")
    destinations.check_url(url, allowed_providers(internal_origins))


SECONDS: Final = 10.0
"""Limit of one request, from the resolution of the name to the last byte."""
MAX_BYTES: Final = 512 * 1024
"""Limit of an answer's body."""

_REDIRECTS: Final = range(300, 400)


class ProviderFailed(Exception):
    """The provider cannot be asked, or its answer cannot be used; the message says why."""


class ProviderClient:
    """An HTTP client for identity providers; one per process."""

    def __init__(self, internal_origins: Sequence[str], resolve: Resolve = resolve) -> None:
        self.internal_origins = tuple(internal_origins)
        self._http = HttpClient(allowed_providers(internal_origins), resolve=resolve, max_idle=0)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object at a URL.

        Raises:
            ProviderFailed.

        """
        status, answer = await self._ask("GET", url, headers or {}, None)
        if status != 200:
            raise ProviderFailed(f"{url} answered with status {status}")
        return answer

    async def post(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Send a form; return the status and the JSON object of the answer.

        Raises:
            ProviderFailed.

        """
        encoded = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        return await self._ask("POST", url, encoded, urlencode(form).encode())

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, dict[str, Any]]:
        sent = {"Accept": "application/json", **headers}
        try:
            async with asyncio.timeout(SECONDS):
                check_url(url, self.internal_origins)
                async with self._http.request(method, url, sent, body) as answer:
                    told = await _body(answer, url)
        except TimeoutError:
            raise ProviderFailed(f"{url} did not answer within {SECONDS:.0f} seconds") from None
        except ValueError as error:  # of the checks
            raise ProviderFailed(f"{url} may not be asked: {error}") from None
        except RequestFailed as error:
            raise ProviderFailed(f"{url} cannot be reached: {error}") from None
        status = answer.head.status
        try:
            return status, msgspec.json.decode(told, type=dict[str, Any])
        except (ValueError, RecursionError):
            raise ProviderFailed(f"{url} answered with status {status} and no JSON") from None


async def _body(answer: Answer, url: str) -> bytes:
    if answer.head.all("content-encoding") not in ([], ["identity"]):
        raise ProviderFailed(f"{url} answered in an encoding that was not asked for")
    if answer.head.status in _REDIRECTS:
        raise ProviderFailed(f"{url} answered with a redirect, which is not followed")
    return await answer.read(MAX_BYTES)
