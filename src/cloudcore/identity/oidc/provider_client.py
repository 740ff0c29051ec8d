"""Ask identity providers over HTTP: few seconds, few bytes, no redirect, vetted addresses only.

The address is vetted and then connected to, without a second resolution in between; the name is
still what the certificate must be for.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

import msgspec

from cloudcore.identity.oidc.destinations import check_addresses, check_url

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

SECONDS: Final = 10.0
"""Limit of one request, from the resolution of the name to the last byte."""
MAX_BYTES: Final = 512 * 1024
"""Limit of an answer's body."""


class ProviderFailed(Exception):
    """The provider cannot be asked, or its answer cannot be used; the message says why."""


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


class ProviderClient:
    """An HTTP client for identity providers; one per process."""

    def __init__(self, internal_origins: Sequence[str], resolve: Resolve = resolve) -> None:
        self.internal_origins = tuple(internal_origins)
        self._resolve = resolve

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
        return await self._ask("POST", url, headers, form)

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> tuple[int, dict[str, Any]]:
        from cloudcore.identity.oidc.vetted_request import send  # noqa: PLC0415 - httpx

        try:
            async with asyncio.timeout(SECONDS):
                destination = check_url(url, self.internal_origins)
                addresses = await self._resolve(destination.host, destination.port)
                check_addresses(destination, addresses)
                status, body = await send(
                    method, url, destination, addresses, headers, form, self._tls
                )
        except TimeoutError:
            raise ProviderFailed(f"{url} did not answer within {SECONDS:.0f} seconds") from None
        except ValueError as error:  # of the checks
            raise ProviderFailed(f"{url} may not be asked: {error}") from None
        except OSError as error:
            words = error.strerror or type(error).__name__
            raise ProviderFailed(f"{url} cannot be reached: {words}") from None
        try:
            return status, msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, RecursionError):
            raise ProviderFailed(f"{url} answered with status {status} and no JSON") from None

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        from cloudcore.identity.oidc.vetted_request import tls_context  # noqa: PLC0415 - httpx

        return tls_context()
