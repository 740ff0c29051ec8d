"""A client of upstream registries, beside a scripted one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest
from msgspec import structs

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.host_lookup import Resolve, resolve
from cloudcore.outbound.http_client import HttpClient, TimeLimits
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.upstream.base import Credential, RateLimit, Remote, UpstreamFailed, UpstreamObserver
from registry.upstream.client import RegistryClient
from tests.scripted_upstream import ScriptedUpstream, scripted_upstream

CANARY: Final = "canary-5f0c2d"
SHORT: Final = TimeLimits(connect=10, head=10, idle=0.3, small_answer=0.3)
"""For a body that does not come; one that comes may be late on a busy machine."""
LONG: Final = TimeLimits(connect=10, head=10, idle=10, small_answer=10)
NOW: Final = 1_800_000_000 * MICROSECONDS
NAME: Final = "library/alpine"
LAYER: Final = b"0123456789" * 50


def rule_of(account_id: str, **fields: object) -> CacheRule:
    """Return a pull-through cache rule of an account."""
    rule = CacheRule(
        id=uuid7(),
        account_id=account_id,
        region="local",
        prefix="hub",
        upstream_url="https://upstream.example",
        created_at=0,
        updated_at=0,
    )
    return structs.replace(rule, **fields)


@dataclass
class Noted:
    """A watch that lets everything pass and remembers it."""

    rates: list[RateLimit] = field(default_factory=list)
    successes: int = 0
    failures: list[UpstreamFailed] = field(default_factory=list)
    accepts: str = ""
    """For which repository a credential was accepted."""

    async def check(self, remote: Remote) -> None:
        """Let it pass."""

    async def succeeded(self, remote: Remote, rate: RateLimit | None) -> None:
        """Count it."""
        self.successes += 1
        self.rates += [rate] if rate else []

    async def failed(self, remote: Remote, failure: UpstreamFailed) -> None:
        """Remember it."""
        self.failures.append(failure)

    def is_accepted(self, remote: Remote, *, elsewhere: bool) -> bool:
        """Return True if a credential was accepted, `elsewhere` if asked so."""
        return bool(self.accepts) and not (elsewhere and remote.repository == self.accepts)


@dataclass
class Asking:
    """A client and its upstream."""

    upstream: ScriptedUpstream
    client: RegistryClient
    http: HttpClient
    watch: Noted
    now: int = NOW

    def remote(self, repository: str = "library/alpine", *, anonymous: bool = False) -> Remote:
        """Return a repository of the upstream, with the canary as its credential."""
        credential = None if anonymous else Credential("user", CANARY)
        return Remote("rule", self.upstream.url, repository, credential)


@contextmanager
def ask_of(
    upstream: ScriptedUpstream,
    *,
    others: Sequence[str] = (),
    resolve: Resolve = resolve,
    limits: TimeLimits = LONG,
    watch: UpstreamObserver | None = None,
) -> Iterator[Asking]:
    """Give a client of an upstream that is served; `others` are further origins it may ask.

    It waits as long as a busy machine needs, unless `limits` say otherwise.
    """
    allowed = Allowed("ENTREPOT_UPSTREAM_ALLOWED", (upstream.url, *others))
    http = HttpClient(allowed, resolve=resolve, limits=limits)
    noted = Noted()
    given = Asking(upstream, RegistryClient(http, lambda: given.now, watch or noted), http, noted)
    try:
        yield given
    finally:
        http.close()


@contextmanager
def asking(upstream: ScriptedUpstream | None = None) -> Iterator[Asking]:
    """Serve an upstream and give its client."""
    with scripted_upstream(upstream) as served, ask_of(served) as asked:
        yield asked


@pytest.fixture
async def asked() -> AsyncIterator[Asking]:
    """Serve an upstream with an image of one layer, for which the client has a credential."""
    with asking() as asked:
        asked.upstream.add_image(NAME, "3", LAYER)
        asked.upstream.username, asked.upstream.secret = "user", CANARY
        yield asked
