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
from urllib.parse import urlsplit, urlunsplit

import httpx
import msgspec

from cloudcore.identity.oidc.destinations import Destination, check_addresses, check_url

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

SECONDS: Final = 10.0
"""Limit of one request, from the resolution of the name to the last byte."""
MAX_BYTES: Final = 512 * 1024
"""Limit of an answer's body."""
_MAX_ADDRESSES: Final = 4


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
        try:
            async with asyncio.timeout(SECONDS):
                destination = check_url(url, self.internal_origins)
                addresses = await self._resolve(destination.host, destination.port)
                check_addresses(destination, addresses)
                status, body = await self._connect(
                    method, url, destination, addresses, headers, form
                )
        except TimeoutError:
            raise ProviderFailed(f"{url} did not answer within {SECONDS:.0f} seconds") from None
        except ValueError as error:  # of the checks
            raise ProviderFailed(f"{url} may not be asked: {error}") from None
        except OSError as error:
            words = error.strerror or type(error).__name__
            raise ProviderFailed(f"{url} cannot be reached: {words}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            words = str(error) or type(error).__name__
            raise ProviderFailed(f"{url} cannot be reached: {words}") from None
        try:
            return status, msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, RecursionError):
            raise ProviderFailed(f"{url} answered with status {status} and no JSON") from None

    async def _connect(
        self,
        method: str,
        url: str,
        destination: Destination,
        addresses: Sequence[Address],
        headers: Mapping[str, str],
        form: Mapping[str, str] | None,
    ) -> tuple[int, bytes]:
        """Send a request to the first address that takes the connection."""
        why = "its host has no address"
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await self._send(method, url, destination, address, headers, form)
            except httpx.ConnectError as error:  # also of a certificate
                why = str(error) or "no connection"
        raise ProviderFailed(f"{url} cannot be reached: {why}")

    async def _send(
        self,
        method: str,
        url: str,
        destination: Destination,
        address: Address,
        headers: Mapping[str, str],
        form: Mapping[str, str] | None,
    ) -> tuple[int, bytes]:
        parts = urlsplit(url)
        host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
        pinned = urlunsplit(parts._replace(netloc=f"{host}:{destination.port}"))
        sent = {
            **headers,
            "Host": parts.netloc,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "Entrepot",
        }
        extensions = {"sni_hostname": destination.host}
        async with (
            httpx.AsyncClient(
                verify=self._tls, trust_env=False, follow_redirects=False, timeout=SECONDS
            ) as client,
            client.stream(
                method, pinned, headers=sent, data=form, extensions=extensions
            ) as response,
        ):
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ProviderFailed(f"{url} answered in an encoding that was not asked for")
            if response.is_redirect:
                raise ProviderFailed(f"{url} answered with a redirect, which is not followed")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ProviderFailed(f"{url} answered with more than {MAX_BYTES} bytes")
            return response.status_code, bytes(body)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Return what certificates are verified with: the packaged roots and the machine's."""
        context = httpx.create_ssl_context()
        context.load_default_certs()
        return context
