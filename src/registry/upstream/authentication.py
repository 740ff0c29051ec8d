"""Authenticate at upstreams: parse their challenges (RFC 9110 §11), and fetch tokens.

Tokens are cached by scope until they expire (distribution's ``auth/token``).
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.outbound.destinations import Allowed, Destination, NotAllowed, check_url
from cloudcore.outbound.http_client import HttpClient
from cloudcore.outbound.http_connection import RequestFailed
from registry.upstream.base import (
    Credential,
    Remote,
    UpstreamBroken,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamUnreachable,
)
from registry.upstream.response_headers import failure_of, failure_of_status, origin_name

_HTTPS: Final = 443
_SHARED: Final = frozenset(
    # Domains under which strangers have names.
    {
        *("azurecr.io", "amazonaws.com", "pkg.dev", "run.app", "github.io", "gitlab.io"),
        *("cloudfront.net", "herokuapp.com", "azurewebsites.net", "cloudapp.net", "ocir.io"),
        *("icr.io", "scw.cloud", "vercel.app", "netlify.app", "pages.dev", "workers.dev"),
        *("fly.dev", "ngrok.io", "ngrok.app", "duckdns.org", "dyndns.org", "blogspot.com"),
    }
)
_SECOND_LEVELS: Final = frozenset(
    # As in co.uk and com.au.
    {"ac", "co", "com", "edu", "go", "gob", "gov", "gouv", "ltd", "mil", "ne", "net", "or", "org"}
)
_COUNTRY_LETTERS: Final = 2


def check_realm(origin: str, realm: str, allowed: Allowed) -> Destination:
    """Check that an upstream may name this realm; return the realm's destination.

    The realm must have the upstream's origin or, if both are https on the usual port, a host in the
    domain of the upstream. Raise NotAllowed with the reason as a sentence.
    """
    upstream, found = check_url(origin, allowed), check_url(realm, allowed)
    if found.origin == upstream.origin:
        return found
    are_usual = all(each.scheme == "https" and each.port == _HTTPS for each in (upstream, found))
    domain = _domain(upstream.host)
    if are_usual and domain and (found.host == domain or found.host.endswith(f".{domain}")):
        return found
    raise NotAllowed(f"{found.authority} is no place of {upstream.authority}")


def _domain(host: str) -> str | None:
    """Return the domain that only the host's owner controls, or None if unknown.

    It is the host name without its first label, unless strangers can have names in that domain.
    """
    domain = host.partition(".")[2]
    labels = domain.split(".")
    if len(labels) < 2 or ":" in host or labels[-1].isdigit():
        return None
    is_country = len(labels[-1]) == _COUNTRY_LETTERS
    is_suffix = len(labels) == 2 and is_country and labels[0] in _SECOND_LEVELS
    is_shared = any(domain == each or domain.endswith(f".{each}") for each in _SHARED)
    return None if is_suffix or is_shared else domain


_MAX_HEADER: Final = 4096
_SCHEME: Final = re.compile(r"[\s,]*([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:[ \t]+|[ \t]*(?=,)|[ \t]*\Z)")
_PARAMETER: Final = re.compile(
    r"[\s,]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"=]+))[ \t]*(?=,|\Z)"
)
_ESCAPED: Final = re.compile(r"\\(.)")


class Challenge(NamedTuple):
    """A parsed challenge: ``basic``, or ``bearer`` with the realm that issues tokens."""

    scheme: str
    realm: str = ""
    service: str = ""
    error: str = ""
    """Why the token that came with the request does not suffice (RFC 6750 §3.1)."""


def read_challenges(headers: Sequence[str]) -> list[Challenge]:
    """Parse the Bearer and Basic challenges in ``WWW-Authenticate`` headers, Bearer first.

    Malformed challenges are skipped, and so are those with a repeated parameter.
    """
    found = [each for header in headers for each in _challenges(header[:_MAX_HEADER])]
    return sorted(found, key=lambda each: each.scheme == "basic")


def _challenges(header: str) -> Iterator[Challenge]:
    at = 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        given: list[tuple[str, str]] = []
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            name, quoted, token = parameter.groups()
            value = token if quoted is None else _ESCAPED.sub(r"\1", quoted)
            given.append((name.lower(), value))
        values = dict(given)
        if len(values) != len(given):
            continue
        kind = scheme[1].lower()
        if kind == "basic" or (kind == "bearer" and values.get("realm")):
            told = (values.get(name, "") for name in ("realm", "service", "error"))
            yield Challenge(kind, *told)


MAX_KEPT: Final = 2000
"""Maximum number of tokens, and of challenges, that a process caches."""
MAX_SECONDS: Final = 3600
"""Maximum seconds for which a token is cached."""
_DEFAULT_SECONDS: Final = 60
_MARGIN: Final = 0.1
_REFUSALS: Final = frozenset({400, 401, 403, 404})
_OF_REPOSITORY: Final = frozenset({401, 403})
"""Statuses of realms that refuse a token for private or missing repositories."""
_MAX_ANSWER: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[!-~]{1,32768}")


class _Key(NamedTuple):
    rule_id: str
    origin: str
    credential: Credential | None
    scope: str


class _CachedToken(NamedTuple):
    header: str
    until: int


class _TokenAnswer(msgspec.Struct):
    """The response of a realm, with a token."""

    token: str | None = None
    access_token: str | None = None
    expires_in: int | float | None = None


class Tokens:
    """Provides the ``Authorization`` headers that upstreams require; one per process."""

    def __init__(self, http: HttpClient, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._challenges: dict[_Key, Challenge] = {}
        self._kept: dict[_Key, _CachedToken] = {}
        self._locks: dict[_Key, asyncio.Lock] = {}

    async def known(self, remote: Remote, scope: str) -> str | None:
        """Return the header for the upstream's last known challenge; None to send no header.

        Return None if no challenge is known, or the challenge's realm gives no token. Forget the
        challenge of such a realm, since the upstream may have changed it.

        Raise `UpstreamFailed` if a token is needed, and the realm cannot be reached.
        """
        challenge = self._challenges.get(_key(remote, ""))
        if challenge is None:
            return None
        try:
            return await self._header(remote, scope, challenge, None)
        except UpstreamFailed as failure:
            self._challenges.pop(_key(remote, ""), None)
            if isinstance(failure, UpstreamBroken | UpstreamRefused):
                return None
            raise

    async def renewed(
        self, remote: Remote, scope: str, headers: list[str], refused: str | None
    ) -> str:
        """Return a new header, after `refused` was refused with the challenges in `headers`.

        `refused` is None if no header was sent. The new header equals `refused` if the realm issues
        the same token again. Raise `UpstreamFailed` if no header can be made, or only the same
        Basic header.
        """
        wanted = read_challenges(headers)
        if remote.credential is None:
            wanted = [each for each in wanted if each.scheme == "bearer"]
        if not wanted:
            raise UpstreamRefused(f"{origin_name(remote.origin)} wants a credential (status 401)")
        header = await self._header(remote, scope, wanted[0], refused)
        if len(self._challenges) >= MAX_KEPT:
            self._challenges.clear()
        self._challenges[_key(remote, "")] = wanted[0]
        if header == refused and wanted[0].scheme == "basic":
            raise UpstreamRefused(f"{origin_name(remote.origin)} does not take the credential")
        return header

    async def _header(
        self, remote: Remote, scope: str, challenge: Challenge, refused: str | None
    ) -> str:
        if challenge.scheme == "basic":
            assert remote.credential is not None
            return _basic(remote.credential)
        key = _key(remote, scope)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                kept = self._kept.get(key)
                if kept is None or kept.header == refused or kept.until <= self._clock():
                    kept = await self._fetch(remote, scope, challenge)
                    self._keep(key, kept)
                return kept.header
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    def _keep(self, key: _Key, kept: _CachedToken) -> None:
        if len(self._kept) >= MAX_KEPT:
            now = self._clock()
            self._kept = {name: each for name, each in self._kept.items() if each.until > now}
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = kept

    async def _fetch(self, remote: Remote, scope: str, challenge: Challenge) -> _CachedToken:
        host = origin_name(remote.origin)
        try:
            realm = check_realm(remote.origin, challenge.realm, self._http.allowed)
        except NotAllowed as error:
            raise _auth(UpstreamBroken(f"{host} names a realm for tokens: {error}")) from None
        asked = {"service": challenge.service, "scope": scope}
        query = urlencode({name: value for name, value in asked.items() if value})
        joint = "&" if "?" in realm.target else "?"
        url = f"{realm.origin}{realm.target}{joint}{query}" if query else challenge.realm
        headers = {"Accept": "application/json"}
        if remote.credential is not None:
            headers["Authorization"] = _basic(remote.credential)
        now = self._clock()
        try:
            async with self._http.request("GET", url, headers) as answer:
                head = answer.head
                body = await answer.read(_MAX_ANSWER)
        except NotAllowed as error:
            raise _auth(UpstreamUnreachable(f"{realm.host} may not be asked: {error}")) from None
        except RequestFailed as error:
            raise _auth(failure_of(realm.host, error)) from None
        if head.status in _REFUSALS:
            words = "does not take the credential"
            if remote.credential is None:
                words = "gives no token without a credential"
            refused = UpstreamRefused(f"{realm.host} {words} (status {head.status})")
            refused.is_of_repository = bool(scope) and head.status in _OF_REPOSITORY
            raise _auth(refused, head.status)
        if head.status != 200:
            raise _auth(failure_of_status(realm.host, head, now), head.status)
        return _read(body, realm.host, now)


def _read(body: bytes, host: str, now: int) -> _CachedToken:
    try:
        answer = msgspec.json.decode(body, type=_TokenAnswer)
    except (ValueError, RecursionError):
        raise _auth(UpstreamBroken(f"{host} answered with no token")) from None
    token = answer.token or answer.access_token or ""
    if not _TOKEN.fullmatch(token):
        raise _auth(UpstreamBroken(f"{host} answered with no token that a header can hold"))
    given = _DEFAULT_SECONDS if answer.expires_in is None else answer.expires_in
    seconds = min(max(given, 0), MAX_SECONDS) * (1 - _MARGIN)
    return _CachedToken(f"Bearer {token}", now + int(seconds * MICROSECONDS))


def _auth(failure: UpstreamFailed, status: int | None = None) -> UpstreamFailed:
    failure.stage = "auth"
    failure.http_status = status
    return failure


def _basic(credential: Credential) -> str:
    text = f"{credential.username}:{credential.secret}"
    return "Basic " + base64.b64encode(text.encode()).decode()


def _key(remote: Remote, scope: str) -> _Key:
    return _Key(remote.rule_id, remote.origin, remote.credential, scope)
