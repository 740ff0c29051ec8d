"""Purge deleted tags that are no longer restorable."""

from __future__ import annotations

from typing import Final

from registry.metadata.tags.deleted import forget_deleted_tags
from registry.services.context import ServiceContext

_BATCH: Final = 50


async def purge_deleted_tags(ctx: ServiceContext) -> None:
    """Delete the expired rows of deleted tags; their events stay."""
    while await ctx.database.write_relaxed(forget_deleted_tags, ctx.clock(), _BATCH):
        pass
