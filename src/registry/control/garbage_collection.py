"""``/v1/garbage-collection``: the garbage of the caller's account, and the collector's runs."""

from __future__ import annotations

from typing import Final, Literal

from litestar.params import FromPath

from cloudcore.web.answers import RecordAnswers
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply
from cloudcore.wire import ResponseBody
from registry.control.bodies import RunAnswers, RunRecord
from registry.control.repositories import authorized_for_all
from registry.control.visible_repositories import change_of
from registry.metadata.collector.collection import Amount
from registry.services import collector_runs
from registry.services.context import ServiceContext

_PATH = "/v1/garbage-collection"


class GarbageCollectionRun(RunRecord):
    """A run of the collector over the account."""

    started_by: str | None
    """CRN of the principal that started it; null if the schedule did."""
    unlinked: int
    """Blobs removed from repositories in which no manifest references them."""
    condemned: int
    """Those of the unlinked blobs that no other repository has."""
    swept: int
    """Condemned blobs that entered the quarantine."""
    removed: int
    """Blobs whose bytes were deleted at the end of their quarantine."""
    freed_bytes: int
    """Bytes on disk of the removed blobs."""
    kept: int
    """Condemned blobs that stay, because something refers to them again."""


class GarbageCollectionStatus(ResponseBody):
    """Blobs and bytes in each stage of garbage collection."""

    status: Literal["idle", "running"]
    unreferenced_blobs: int
    """Blobs in repositories in which no manifest references them."""
    unreferenced_bytes: int
    """Their sizes as pulled, counted in each repository. `pending_sweep_bytes` of the storage usage
    counts bytes on disk instead, once for the account, and without blobs that something needs."""
    condemned_blobs: int
    """Blobs in no repository. A push of the same bytes brings them back."""
    condemned_bytes: int
    """Their bytes on disk."""
    quarantined_blobs: int
    """Swept blobs, which an operator can still recover."""
    quarantined_bytes: int
    """Their bytes on disk."""
    grace_seconds: int
    """How long an unreferenced blob stays in its repository after its last use."""
    condemned_seconds: int
    """How long a blob stays condemned before it is swept."""
    quarantine_seconds: int
    """How long the bytes of a swept blob are kept."""
    last_run: GarbageCollectionRun | None


_RUN: Final = RunAnswers(GarbageCollectionRun, collector_runs.KIND)


@_RUN.changes(f"{_PATH}/runs", "registry:StartGarbageCollection", status=202)
async def start_garbage_collection(ctx: Context) -> Reply[ResponseBody]:
    """Start a run over what is due now; if one is under way, return that one."""
    account_id = authorized_for_all(ctx)
    return await ctx.commit(
        collector_runs.start_collection,
        account_id,
        ctx.new_id(),
        change_of(ctx),
        wrap=_RUN.one,
        location=lambda run: f"{_PATH}/runs/{run.id}",
    )


@_RUN.lists(f"{_PATH}/runs", "registry:DescribeGarbageCollection")
async def list_garbage_collection_runs(ctx: Context) -> ResponseBody:
    """List the collector's runs over the account, the newest first."""
    return await _RUN.page(ctx, authorized_for_all(ctx))


@_RUN.gets(f"{_PATH}/runs/{{run_id:str}}", "registry:DescribeGarbageCollection")
async def get_garbage_collection_run(run_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a run of the collector over the account."""
    return await _RUN.get(ctx, authorized_for_all(ctx), run_id)


def _status(needs: ServiceContext, found: collector_runs.Status) -> GarbageCollectionStatus:
    return GarbageCollectionStatus(
        status="running" if found.is_running else "idle",
        **_amounts("unreferenced", found.unreferenced),
        **_amounts("condemned", found.condemned),
        **_amounts("quarantined", found.quarantined),
        grace_seconds=needs.delays.gc_grace_seconds,
        condemned_seconds=needs.delays.gc_condemned_seconds,
        quarantine_seconds=needs.delays.gc_quarantine_seconds,
        last_run=_RUN.show(found.last_run) if found.last_run else None,
    )


_STATUS: Final = RecordAnswers(
    GarbageCollectionStatus, "garbage_collection", _status, noun="collector's status"
)


@_STATUS.gets(_PATH, "registry:DescribeGarbageCollection")
async def get_garbage_collection(ctx: Context, needs: Needs[ServiceContext]) -> ResponseBody:
    """Return the account's blobs and bytes in each stage, and the last run."""
    found = await ctx.database.read(collector_runs.status, authorized_for_all(ctx))
    return _STATUS.one(needs, found)


def _amounts(stage: str, amount: Amount) -> dict[str, int]:
    return {f"{stage}_blobs": amount.blobs, f"{stage}_bytes": amount.stored_bytes}
