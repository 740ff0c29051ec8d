"""How many e-mail addresses an organization may learn of: who adds people is told who is there.

An address is the sign-in name of the whole install, so to add a person of a taken one is refused,
and to invite nobody is refused too. Each refusal tells that somebody has, or has not, an account.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cloudcore.context import Context
from cloudcore.errors import PlatformError, RateLimited
from cloudcore.ratelimit import Budget, count_request, give_back

BUDGET: Final = Budget(limit=10, window_seconds=24 * 3600, is_extended=False)
"""Refusals of one organization."""
_ENDPOINT: Final = "address lookups"


@asynccontextmanager
async def counted_lookup(
    ctx: Context, organization_id: str, telling: type[PlatformError]
) -> AsyncIterator[None]:
    """Count a look at an address that is made within; but not if it ends without `telling`.

    Raises:
        RateLimited: the organization has learned enough today.

    """
    standing = await ctx.database.write_relaxed(
        count_request, _ENDPOINT, organization_id, BUDGET, ctx.clock()
    )
    if standing.is_refused:
        raise RateLimited("too many addresses were refused today", retry_after=standing.reset)
    try:
        yield
    except telling:
        raise
    except PlatformError:
        await _forgive(ctx, organization_id)
        raise
    await _forgive(ctx, organization_id)


async def _forgive(ctx: Context, organization_id: str) -> None:
    await ctx.database.write_relaxed(give_back, _ENDPOINT, organization_id, ctx.clock())
