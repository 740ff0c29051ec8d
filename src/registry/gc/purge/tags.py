"""Deleted tags that cannot be restored any more."""

from __future__ import annotations

from typing import Final

from registry.metadata.tags.deleted import forget_deleted_tags
from registry.services.context import ServiceContext

_BATCH: Final = 50


async def purge_deleted_tags(ctx: ServiceContext) -> None:
    """Remove the deleted tags whose time is over; the history still tells of them."""
    while await ctx.database.write_relaxed(forget_deleted_tags, ctx.clock(), _BATCH):
        pass
