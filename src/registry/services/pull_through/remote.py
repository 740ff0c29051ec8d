"""The upstream repository and credential for a name under a rule; tests of upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from cloudcore.errors import Unavailable
from cloudcore.keyring import Keyring, KeyringError
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from cloudcore.wire import ResponseBody
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.oci.reference import Name
from registry.services.pull_through.upstream_states import UpstreamWatch
from registry.upstream.base import (
    Credential,
    HiddenUpstream,
    NotUpstream,
    Remote,
    UpstreamFailed,
    UpstreamLimited,
    UpstreamStage,
)
from registry.upstream.client import RegistryClient

_RETRY_SECONDS: Final = 30
OpenCredential = Callable[[CacheRule], Credential | None]
"""Decrypts the credential of a rule; None if the rule has none."""

_DOCKER_HUB: Final = frozenset(
    {"https://docker.io", "https://index.docker.io", "https://registry-1.docker.io"}
)


def no_credential(_rule: CacheRule) -> Credential | None:
    """Return None: by default, upstreams are asked without a credential."""
    return None


def remote_of(rule: CacheRule, name: Name, open_credential: OpenCredential) -> Remote:
    """Return the upstream repository of a name under the rule's prefix, with the credential.

    Official images on Docker Hub, whose names have one component, are under ``library/``. The
    result is locked if the rule's secret was sealed under another root key: then requests fail as
    if the upstream had refused the credential.
    """
    rest = name.repository.removeprefix(f"{rule.prefix}/")
    if rule.upstream_prefix:
        rest = f"{rule.upstream_prefix}/{rest}"
    elif "/" not in rest and rule.upstream_url.removesuffix(":443") in _DOCKER_HUB:
        rest = f"library/{rest}"
    remote = Remote(rule.id, rule.upstream_url, rest, None)
    try:
        return remote._replace(credential=open_credential(rule))
    except KeyringError:
        return remote._replace(is_locked=True)


@asynccontextmanager
async def open_upstreams(
    database: Database, clock: Clock, allowed: Allowed
) -> AsyncIterator[RegistryClient]:
    """Yield the client of this process for upstreams; close its connections at the end."""
    http = HttpClient(allowed)
    try:
        yield RegistryClient(http, clock, UpstreamWatch(database, clock))
    finally:
        http.close()


def as_error(failure: UpstreamFailed, now: int) -> Unavailable:
    """Return the error for a failed upstream: 503, with the time after which to retry.

    A 404 would mean that the content does not exist, a 401 that the client's own credential is
    wrong.
    """
    retry_after = _RETRY_SECONDS
    if isinstance(failure, UpstreamLimited):
        retry_after = max(1, -((now - failure.retry_at) // MICROSECONDS))
    return Unavailable(f"upstream registry: {failure}", retry_after=retry_after)


def seal_secret(keyring: Keyring, rule_id: str, secret: str) -> bytes:
    """Encrypt the secret of a rule with a key of the keyring; `credential_of` decrypts it."""
    return keyring.seal(secret.encode(), _context(rule_id))


def credential_of(keyring: Keyring, rule: CacheRule) -> Credential | None:
    """Decrypt the credential of a rule; None if the rule has none.

    Raise `KeyringError` if it was sealed under another root key.
    """
    if rule.username is None or rule.secret_sealed is None:
        return None
    return Credential(rule.username, keyring.open(rule.secret_sealed, _context(rule.id)).decode())


def _context(rule_id: str) -> str:
    return f"pull-through-cache-rule:{rule_id}"


_MOST_SECONDS: Final = 30
_OK: Final = 200
_NOT_FOUND: Final = 404


class UpstreamTest(ResponseBody):
    """How a test of a rule's upstream ended; a failure is an answer, not an error."""

    ok: bool
    stage: UpstreamStage
    """How far it came: the name's address, the connection, the token, or the answer."""
    http_status: int | None
    """The status that the upstream answered, or null if it did not."""
    latency_ms: int
    message: str


class ImageToTest(NamedTuple):
    """An image that a test asks the upstream for."""

    repository: Name
    tag: str


async def ask_upstream(
    upstream: RegistryClient | None,
    open_credential: OpenCredential,
    rule: CacheRule,
    wanted: ImageToTest | None,
    clock: Clock,
) -> UpstreamTest:
    """Test if a rule's upstream answers or, with `wanted`, has an image; pull nothing."""
    began = clock()

    def ended(
        stage: UpstreamStage, status: int | None, message: str, *, ok: bool = False
    ) -> UpstreamTest:
        ms = max(0, clock() - began) // 1000
        return UpstreamTest(ok=ok, stage=stage, http_status=status, latency_ms=ms, message=message)

    if upstream is None:
        return ended("dns", None, "this server asks no upstreams")
    name = wanted.repository if wanted else Name("", f"{rule.prefix}/")
    remote = remote_of(rule, name, open_credential)
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            if wanted is None:
                status = await upstream.ping(remote._replace(repository=""))
                return ended("auth", status, f"{rule.upstream_url} answers", ok=True)
            await upstream.head_manifest(remote, wanted.tag)
    except TimeoutError:
        return ended("tls", None, f"no answer within {_MOST_SECONDS} seconds")
    except NotUpstream as missing:
        words = f"{rule.upstream_url} has no {remote.repository}"
        words = f"{words}:{wanted.tag}" if wanted else words
        if not isinstance(missing, HiddenUpstream):
            return ended("manifest", _NOT_FOUND, words)
        whom = "anonymous requests" if rule.username is None else f"the user {rule.username}"
        status = missing.http_status
        return ended("manifest", status, f"{words}, or does not show it to {whom}")
    except UpstreamFailed as failure:
        return ended(failure.stage, failure.http_status, str(failure))
    return ended("manifest", _OK, f"{remote.repository}:{wanted.tag} is there", ok=True)
