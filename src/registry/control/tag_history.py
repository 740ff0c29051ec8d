"""``/v1/repositories/{id}/tags/{tag}/history``: who changed a tag, when, and to what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.web.references import ActingSource, acting_source
from cloudcore.wire import RFC3339, ResponseBody, rfc3339
from registry.control.visible_repositories import PATH, authorized_own
from registry.metadata.tags.history import TagEvent, count_tag_events, list_tag_events
from registry.metadata.tags.pointers import find_tag


class TagChange(ResponseBody):
    """A change of a tag."""

    tag: str
    action: str
    """`created`, `moved`, `deleted` or `restored`."""
    digest: str | None
    previous_digest: str | None
    principal: str | None
    """CRN of the principal that did it; null for an unauthenticated client."""
    source: ActingSource | None
    """Who is behind the principal; null if that is unknown or nobody."""
    occurred_at: RFC3339


class ManyTagChanges(ResponseBody):
    """A page of changes, newest first."""

    history: Sequence[TagChange]
    meta: PageMeta


@get(
    PATH + "/tags/{tag:str}/history",
    opt={"action": "registry:DescribeImages", "query": PageQuery},
)
async def get_tag_history(
    repository_id: FromPath[str], tag: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyTagChanges:
    """List the changes of a tag within a year, newest first, with the principal of each."""
    repository = (await authorized_own(ctx, repository_id)).repository
    pager = ctx.pager(ctx.query(PageQuery))
    (before,) = pager.position or (None,)

    def read(tx: Connection) -> tuple[list[TagEvent], int]:
        rows = list_tag_events(tx, repository.id, tag, before, pager.wanted)
        total = count_tag_events(tx, repository.id, tag)
        if not total and find_tag(tx, repository.id, tag) is None:
            raise NotFound("there is no such tag, and was none")
        return rows, total

    found, meta = pager.cut(*await ctx.database.read(read), lambda row: (row.sequence,))
    return ManyTagChanges(history=[_change(each) for each in found], meta=meta)


def _change(event: TagEvent) -> TagChange:
    return TagChange(
        tag=event.tag,
        action=event.action,
        digest=event.digest,
        previous_digest=event.previous_digest,
        principal=event.principal or None,
        source=acting_source(event.source),
        occurred_at=rfc3339(event.occurred_at),
    )


HANDLERS: Final = (get_tag_history,)
