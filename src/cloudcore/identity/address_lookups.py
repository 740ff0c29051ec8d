"""Bound how many e-mail addresses an organization can probe by adding and inviting people.

An address is a sign-in name of the whole install. Adding a person with a taken address is refused,
and so is inviting an unknown one. Each refusal tells whether a person has the address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cloudcore.errors import PlatformError, RateLimited
from cloudcore.web.context import RequestContext
from cloudcore.web.ratelimit import Budget, count_request, give_back

BUDGET: Final = Budget(limit=10, window_seconds=24 * 3600, is_extended=False)
"""Refusals of one organization in a day."""
_ENDPOINT: Final = "address lookups"


@asynccontextmanager
async def counted_lookup(
    ctx: RequestContext, organization_id: str, telling: type[PlatformError]
) -> AsyncIterator[None]:
    """Count a look at an address that is made within; but not if it ends without `telling`.

    Raises:
        RateLimited: the organization has used up its lookups of this day.

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


async def _forgive(ctx: RequestContext, organization_id: str) -> None:
    await ctx.database.write_relaxed(give_back, _ENDPOINT, organization_id, ctx.clock())
