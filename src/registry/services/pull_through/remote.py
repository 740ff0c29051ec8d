"""Find the repository of an upstream that a name under a rule means, and the error of a failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from cloudcore.errors import Unavailable
from cloudcore.keyring import KeyringError
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from registry.metadata.pull_through.rules import CacheRule
from registry.oci.reference import Name
from registry.services.pull_through.upstream_states import UpstreamWatch
from registry.upstream.base import Credential, Remote, UpstreamFailed, UpstreamLimited
from registry.upstream.client import RegistryClient

_RETRY_SECONDS: Final = 30
OpenCredential = Callable[[CacheRule], Credential | None]
"""Opens the sealed credential of a rule; None if the rule has none."""

_DOCKER_HUB: Final = frozenset(
    {"https://docker.io", "https://index.docker.io", "https://registry-1.docker.io"}
)


def no_credential(_rule: CacheRule) -> Credential | None:
    """Return None, as upstreams are asked without a credential."""
    return None


def remote_of(rule: CacheRule, name: Name, open_credential: OpenCredential) -> Remote:
    """Return the upstream repository of a name under the rule's prefix.

    It is locked if the rule's secret was sealed under another root key: it fails when it is asked,
    as one does that refuses the credential.

    Docker Hub keeps its official images, which people name by one component, under ``library/``.
    """
    rest = name.repository.removeprefix(f"{rule.prefix}/")
    if rule.upstream_prefix:
        rest = f"{rule.upstream_prefix}/{rest}"
    elif "/" not in rest and is_docker_hub(rule.upstream_url):
        rest = f"library/{rest}"
    remote = Remote(rule.id, rule.upstream_url, rest, None)
    try:
        return remote._replace(credential=open_credential(rule))
    except KeyringError:
        return remote._replace(is_locked=True)


def is_docker_hub(origin: str) -> bool:
    """Return True if an upstream's origin is one of Docker Hub's."""
    return origin.removesuffix(":443") in _DOCKER_HUB


@asynccontextmanager
async def open_upstreams(
    database: Database, clock: Clock, allowed: Allowed
) -> AsyncIterator[RegistryClient]:
    """Give the client of this process's upstreams; its connections are closed at the end."""
    http = HttpClient(allowed)
    try:
        yield RegistryClient(http, clock, UpstreamWatch(database, clock))
    finally:
        http.close()


def as_error(failure: UpstreamFailed, now: int) -> Unavailable:
    """Return the error for what an upstream did not answer: 503, with the time to try again.

    A 404 would be taken for the truth, and a 401 for a refusal of the client's own credential.
    """
    retry_after = _RETRY_SECONDS
    if isinstance(failure, UpstreamLimited):
        retry_after = max(1, -((now - failure.retry_at) // MICROSECONDS))
    return Unavailable(f"upstream registry: {failure}", retry_after=retry_after)
