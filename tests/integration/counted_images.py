"""What images count and keep: their sizes, all counters, and the collector at once."""

from __future__ import annotations

from typing import Any

from registry.gc import fsck
from tests.collecting import at_once, collect
from tests.integration.pushing import Descriptor, World
from tests.recount import check_counters, querying


async def size_of(world: World, image: Descriptor) -> int:
    """Return the size of an image as the control plane tells it."""
    return int((await world.get(f"/images/{image['digest']}"))["image"]["size_bytes"])


async def check(world: World, url: str) -> None:
    """Check all counters, and that fsck finds nothing wrong."""
    with querying(url) as query:
        check_counters(query, world.account.handle)
    ctx = world.install.ctx
    store: Any = ctx.writer
    report = await fsck.check(ctx.database, store, lambda _: None, clock=ctx.clock)
    assert report.violations == []


async def collect_at_once(world: World) -> None:
    """Run the collector with no delay at all."""
    ctx = at_once(world.install.ctx)
    store: Any = ctx.writer
    await collect(ctx, store, world.account.id)
