"""Send one request to a vetted address.

`provider_client` loads this module with its first request: most installs have no identity provider,
and httpx takes 6 MiB.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx

from cloudcore.identity.oidc.destinations import Destination
from cloudcore.identity.oidc.provider_client import MAX_BYTES, Address, ProviderFailed

_MAX_ADDRESSES: Final = 4


def tls_context() -> ssl.SSLContext:
    """Return what certificates are verified with: the packaged roots and the machine's."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context


async def send(
    method: str,
    url: str,
    destination: Destination,
    addresses: Sequence[Address],
    headers: Mapping[str, str],
    form: Mapping[str, str] | None,
    tls: ssl.SSLContext,
) -> tuple[int, bytes]:
    """Send a request to the first address that takes the connection; return status and body.

    The caller limits the time.

    Raises:
        ProviderFailed.

    """
    why = "its host has no address"
    try:
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await _send(method, url, destination, address, headers, form, tls)
            except httpx.ConnectError as error:  # also of a certificate
                why = str(error) or "no connection"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
    raise ProviderFailed(f"{url} cannot be reached: {why}")


async def _send(
    method: str,
    url: str,
    destination: Destination,
    address: Address,
    headers: Mapping[str, str],
    form: Mapping[str, str] | None,
    tls: ssl.SSLContext,
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
            verify=tls,
            trust_env=False,
            follow_redirects=False,
            timeout=None,  # noqa: S113 - the caller's limit is for the whole request
        ) as client,
        client.stream(method, pinned, headers=sent, data=form, extensions=extensions) as response,
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
