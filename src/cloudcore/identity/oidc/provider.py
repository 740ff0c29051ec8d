"""Call identity providers over HTTP, and cache their metadata and keys for an hour.

A call is limited in time and size, follows no redirect, and connects only to vetted addresses.
Metadata and keys are those of OpenID Connect Discovery 1.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.outbound import destinations
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.host_lookup import Resolve, resolve
from cloudcore.outbound.http_client import HttpAnswer, HttpClient
from cloudcore.outbound.http_connection import RequestFailed

MAX_URL: Final = 1000


def _allowed_providers(internal_origins: Sequence[str]) -> Allowed:
    """Return the destinations that may be called: `internal_origins` and the public internet."""
    return Allowed("ENTREPOT_OIDC_INTERNAL_ORIGINS", tuple(internal_origins))


def check_url(url: str, internal_origins: Sequence[str]) -> None:
    """Check that a URL may be called, without resolving its host name.

    Raises:
        ValueError: the URL is not allowed; the message is the reason, for users.

    """
    if len(url) > MAX_URL:
        raise ValueError(f"a URL has at most {MAX_URL} characters")
    destinations.check_url(url, _allowed_providers(internal_origins))


SECONDS: Final = 10.0
"""Maximum seconds of one request, from the resolution of the name to the last byte."""
MAX_BYTES: Final = 512 * 1024
"""Maximum bytes of a response body."""

_REDIRECTS: Final = range(300, 400)


class ProviderFailed(Exception):
    """The provider cannot be reached, or its answer is not valid; the message is the reason."""


class ProviderClient:
    """An HTTP client for identity providers; a process has one."""

    def __init__(self, internal_origins: Sequence[str], resolve: Resolve = resolve) -> None:
        self.internal_origins = tuple(internal_origins)
        self._http = HttpClient(_allowed_providers(internal_origins), resolve=resolve, max_idle=0)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object at a URL.

        Raise `ProviderFailed` as `post` does, and if the status is not 200.
        """
        status, answer = await self._ask("GET", url, headers or {}, None)
        if status != 200:
            raise ProviderFailed(f"{url} answered with status {status}")
        return answer

    async def post(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Send a form; return (status, JSON object of the response).

        Raise `ProviderFailed` if the provider may not be called, cannot be reached, is too slow, or
        does not answer with a JSON object.
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


async def _body(answer: HttpAnswer, url: str) -> bytes:
    if answer.head.all("content-encoding") not in ([], ["identity"]):
        raise ProviderFailed(f"{url} answered in an encoding that was not asked for")
    if answer.head.status in _REDIRECTS:
        raise ProviderFailed(f"{url} answered with a redirect, which is not followed")
    return await answer.read(MAX_BYTES)


KEPT_SECONDS: Final = 3600
REFRESH_SECONDS: Final = 10
"""Minimum seconds between two reads of an issuer's keys for unknown key ids, since a token can
contain any id."""
MISMATCH_SECONDS: Final = 60
"""Minimum seconds between two reads of an issuer's keys after a token that they do not verify.

It is longer than `REFRESH_SECONDS`, because anyone can present such a token repeatedly."""
MAX_ISSUERS: Final = 100
"""Maximum number of issuers whose metadata and keys a process caches."""
_MAX_KEYS: Final = 100
_WELL_KNOWN: Final = "/.well-known/openid-configuration"


class Metadata(msgspec.Struct, frozen=True):
    """The provider metadata that is used here (OpenID Connect Discovery 1.0 §3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: Sequence[str] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False
    """True if the provider's answers contain `iss` (RFC 9207)."""


class _Kept(NamedTuple):
    metadata: Metadata
    keys: Sequence[dict[str, Any]]
    read_at: int
    """When the metadata was read, in microseconds since the epoch."""
    keys_read_at: int
    reading: asyncio.Lock
    """Held while the keys are read again after a mismatch."""


class Discovery:
    """Fetches and caches the metadata and keys of issuers; a process has one instance."""

    def __init__(self, client: ProviderClient) -> None:
        self._client = client
        self._kept: dict[str, _Kept] = {}

    async def metadata(self, issuer: str, now: int) -> Metadata:
        """Return the metadata of an issuer, at most an hour old.

        Raise `ProviderFailed` if metadata or keys cannot be read, or belong to another issuer.
        """
        return (await self._read(issuer, now)).metadata

    async def keys(self, issuer: str, now: int, kid: str | None = None) -> Sequence[dict[str, Any]]:
        """Return the keys of an issuer as JWKs; fetch them again if none has the id `kid`.

        So a provider may rotate its keys at any time. An unknown `kid` causes no fetch within
        `REFRESH_SECONDS` of the last one. Raise `ProviderFailed` if the keys cannot be read.
        """
        kept = await self._read(issuer, now)
        is_known = kid is None or any(key.get("kid") == kid for key in kept.keys)
        if not is_known and now >= kept.keys_read_at + REFRESH_SECONDS * MICROSECONDS:
            keys = await self._read_keys(kept.metadata)
            kept = kept._replace(keys=keys, keys_read_at=now)
            self._kept[issuer] = kept
        return kept.keys

    async def keys_after_mismatch(
        self, issuer: str, now: int, tried: Sequence[dict[str, Any]]
    ) -> Sequence[dict[str, Any]]:
        """Return keys of an issuer that are newer than `tried`, or `tried` itself.

        `tried` is a result of `keys`. So a provider may replace a key under its old id, or publish
        keys without ids. Keys are fetched at most once in `MISMATCH_SECONDS`.

        Raise `ProviderFailed` if the keys cannot be read.
        """
        async with (await self._read(issuer, now)).reading:
            kept = await self._read(issuer, now)
            is_due = now >= kept.keys_read_at + MISMATCH_SECONDS * MICROSECONDS
            if kept.keys is tried and is_due:
                self._kept[issuer] = kept = kept._replace(keys_read_at=now)  # also if it fails
                kept = kept._replace(keys=await self._read_keys(kept.metadata))
                self._kept[issuer] = kept
        return kept.keys

    async def _read(self, issuer: str, now: int) -> _Kept:
        kept = self._kept.get(issuer)
        if kept is not None and now < kept.read_at + KEPT_SECONDS * MICROSECONDS:
            return kept
        url = issuer.rstrip("/") + _WELL_KNOWN
        answer = await self._client.get(url)
        try:
            metadata = msgspec.convert(answer, Metadata)
        except msgspec.ValidationError as error:
            raise ProviderFailed(f"{url} is not what a provider says of itself: {error}") from None
        if metadata.issuer != issuer:
            raise ProviderFailed(f"{url} names another issuer: {metadata.issuer[:200]}")
        try:
            check_url(metadata.authorization_endpoint, self._client.internal_origins)
        except ValueError as error:
            raise ProviderFailed(f"authorization_endpoint of {url}: {error}") from None
        kept = _Kept(metadata, await self._read_keys(metadata), now, now, asyncio.Lock())
        if len(self._kept) >= MAX_ISSUERS:
            self._kept.clear()
        self._kept[issuer] = kept
        return kept

    async def _read_keys(self, metadata: Metadata) -> Sequence[dict[str, Any]]:
        answer = await self._client.get(metadata.jwks_uri)
        keys = answer.get("keys")
        if not isinstance(keys, list):
            raise ProviderFailed(f"{metadata.jwks_uri} has no list of keys")
        return [key for key in keys[:_MAX_KEYS] if isinstance(key, dict)]
