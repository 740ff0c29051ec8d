"""Read runs, and make their response bodies on ``/v1``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, TypeVar

from cloudcore.errors import NotFound
from cloudcore.jobs.runs import Run, count_runs, find_run, list_runs
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import RecordAnswers, answer_of
from cloudcore.web.bodies import ActingSource
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RFC3339, ResponseBody


class RunRecord(ResponseBody):
    """A run of background work."""

    id: Uuid
    status: Literal["running", "succeeded", "failed"]
    started_by_source: ActingSource | None
    """The person or service account behind the starting principal; null if unknown or none."""
    fault: str | None
    """Error code and message of a failed run; else null."""
    started_at: RFC3339
    finished_at: RFC3339 | None


R = TypeVar("R", bound=RunRecord)


def run_record(kind: Callable[..., R], run: Run) -> R:
    """Return the record of a run; the run's counts become fields."""
    named = {"status": run.state, "started_by": run.started_by or None}
    return answer_of(kind, run, **named, **run.counts)


class RunAnswers(RecordAnswers[R]):
    """Response bodies with one run of a kind, or a page of them."""

    def __init__(self, record: type[R], kind: str) -> None:
        """Make bodies with records of the type `record`, for runs of the given kind."""
        super().__init__(record, "run", partial(run_record, record))
        self._kind: Final = kind

    async def page(self, ctx: RequestContext, scope_id: str) -> ResponseBody:
        """Return the requested page of the runs over the resource `scope_id`."""
        query, kind = ctx.query(PageQuery), self._kind
        found, meta = await read_page(
            ctx, query, list_runs, count_runs, kind, scope_id, key=lambda run: run.id
        )
        return self.many([self.show(run) for run in found], meta)

    async def get(self, ctx: RequestContext, scope_id: str, run_id: str) -> ResponseBody:
        """Return a run over the resource `scope_id`; raise `NotFound` if there is none."""
        found = await ctx.database.read(find_run, self._kind, scope_id, run_id)
        if found is None:
            raise NotFound("there is no such run")
        return self.one(found)
