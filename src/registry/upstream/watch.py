"""The seam of budgets: who is told how upstreams answer, and may hold requests back."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from registry.upstream.base import Remote, UpstreamFailed


class RateLimit(NamedTuple):
    """What an upstream says of its limit, such as ``ratelimit-remaining: 76;w=21600``."""

    limit: int | None
    remaining: int
    window_seconds: int | None


class Watch(Protocol):
    """Is told how upstreams answer; what it knows is shared by all workers."""

    async def check(self, remote: Remote) -> None:
        """Return if the upstream may be asked now.

        Raises:
            UpstreamLimited: it wants no requests until a later time.
            UpstreamUnreachable: it failed a moment ago.

        """
        ...

    async def succeeded(self, remote: Remote, rate: RateLimit | None) -> None:
        """Note that it answered as a registry does."""
        ...

    async def failed(self, remote: Remote, failure: UpstreamFailed) -> None:
        """Note that it did not."""
        ...

    def is_accepted(self, remote: Remote, *, elsewhere: bool) -> bool:
        """Return True if its credential was accepted within the hour; `elsewhere`, for another one.

        The caller has just called `check`.
        """
        ...


class NoWatch:
    """Holds nothing back and keeps nothing."""

    async def check(self, remote: Remote) -> None:
        """Return."""

    async def succeeded(self, remote: Remote, rate: RateLimit | None) -> None:
        """Forget it."""

    async def failed(self, remote: Remote, failure: UpstreamFailed) -> None:
        """Forget it."""

    def is_accepted(self, remote: Remote, *, elsewhere: bool) -> bool:  # noqa: ARG002
        """Return False, as nothing is known."""
        return False
