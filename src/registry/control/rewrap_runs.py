"""``/v1/repositories/{id}/encryption-binding/rewrap``: move a repository's blobs to its key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.web.app import Needs
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.wire import ResponseBody
from registry.control.repositories import authorized_repository
from registry.control.runs import RunRecord, read_run, read_runs, run_record
from registry.control.visible_repositories import PATH, change_of
from registry.services.blobs.rewrapping import KIND, start_rewrap
from registry.services.context import ServiceContext

_PATH: Final = f"{PATH}/encryption-binding/rewrap"


class RewrapRun(RunRecord):
    """A run that moves the blobs of a repository to the key that it writes under.

    It counts the repository's links to blobs, and the blobs of its deleted images.
    """

    started_by: str
    """CRN of the principal that started it."""
    total: int | None
    """Blobs that had another key; null until they are counted."""
    done: int
    """Blobs it has looked at."""
    moved: int
    """Blobs that are read through the repository's key now."""
    plain: int
    """Blobs that are stored plain, and so have no key."""
    key_disabled: int
    """Blobs that stayed, since their key is disabled or its deletion is pending."""
    key_deleted: int
    """Blobs that stayed, since their key was deleted."""
    unreadable: int
    """Blobs whose data key no key opens; push them again."""


class OneRewrapRun(ResponseBody):
    """A run, wrapped."""

    run: RewrapRun


class ManyRewrapRuns(ResponseBody):
    """A page of runs."""

    runs: Sequence[RewrapRun]
    meta: PageMeta


@post(
    _PATH,
    status_code=202,
    opt={"action": "registry:RewrapRepository", "idempotent": True, "statuses": (409,)},
)
async def start_rewrap_run(
    repository_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
    needs: Needs[ServiceContext],
) -> Reply[OneRewrapRun]:
    """Move all blobs of a repository to its key; if a run is under way, return that one."""
    repository = await authorized_repository(ctx, repository_id)
    return await ctx.commit(
        partial(start_rewrap, has_keys=needs.data_keys is not None),
        repository.id,
        ctx.new_id(),
        change_of(ctx),
        wrap=lambda run: OneRewrapRun(run=run_record(RewrapRun, run)),
        location=lambda run: (
            f"/v1/repositories/{repository.id}/encryption-binding/rewrap/runs/{run.id}"
        ),
    )


@get(f"{_PATH}/runs", opt={"action": "registry:GetEncryptionBinding", "query": PageQuery})
async def list_rewrap_runs(
    repository_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyRewrapRuns:
    """List the runs that moved a repository's blobs to its key, newest first."""
    repository = await authorized_repository(ctx, repository_id)
    found, meta = await read_runs(ctx, KIND, repository.id)
    return ManyRewrapRuns(runs=[run_record(RewrapRun, run) for run in found], meta=meta)


@get(f"{_PATH}/runs/{{run_id:str}}", opt={"action": "registry:GetEncryptionBinding"})
async def get_rewrap_run(
    repository_id: FromPath[str], run_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneRewrapRun:
    """Return a run that moves a repository's blobs to its key: its progress or its outcome."""
    repository = await authorized_repository(ctx, repository_id)
    return OneRewrapRun(run=run_record(RewrapRun, await read_run(ctx, KIND, repository.id, run_id)))
