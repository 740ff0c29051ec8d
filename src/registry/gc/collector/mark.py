"""Mark: delete unreferenced links after the grace period; condemn objects without links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.db.base import Connection, ConstraintViolated
from cloudcore.jobs.runs import Progress, Run, progress_run
from registry.gc.collector.consistency_check import IndexIncomplete, check_repository
from registry.metadata.collector import collection
from registry.metadata.collector.collection import UnreferencedLink
from registry.services.context import ServiceContext

_BATCH: Final = 200


async def mark(ctx: ServiceContext, run: Run) -> bool:
    """Delete a batch of unreferenced links; return True if there may be more.

    A link that was touched or referenced since it was listed stays.

    Raises:
        IndexIncomplete: manifests contradict their edges or the links' `manifest_refs`.

    """
    now = ctx.clock()
    before = now - ctx.delays.grace
    links = await ctx.database.read(collection.unreferenced_links, run.account_id, before, _BATCH)
    for repository_id in sorted({link.repository_id for link in links}):
        await ctx.database.read(check_repository, repository_id)
    try:
        await ctx.database.write(_unlink, run, links, before, now)
    except ConstraintViolated:
        raise IndexIncomplete("a manifest references a blob whose reference count is 0") from None
    return len(links) == _BATCH


def _unlink(
    tx: Connection, run: Run, links: Sequence[UnreferencedLink], before: int, now: int
) -> None:
    unlinked = collection.unlink_unreferenced(tx, run.account_id, links, before)
    condemned = collection.condemn(tx, run.account_id, {link.object_id for link in links}, now)
    progress = Progress({"unlinked": unlinked, "condemned": condemned})
    progress_run(tx, run.id, progress)
