"""``/v1/repositories/search``: find repositories and tags by a part of their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from litestar import get
from msgspec import UNSET, Meta, UnsetType

from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import ResponseBody
from registry.control.repositories import authorized_for_all, reference_of
from registry.metadata.repositories.search_index import IndexedName, MatchPosition
from registry.services.access.decisions import repository_crn
from registry.services.repositories.search import search_names


class SearchQuery(PageQuery):
    """What to search for."""

    text: Annotated[str, Meta(min_length=1, max_length=128)]
    """A part of a name, in any case."""


class FoundTag(ResponseBody):
    """A tag whose name contains the text."""

    repository: ResourceRef
    name: str


class SearchMeta(ResponseBody):
    """The metadata of a page of matches; their total is not counted."""

    limit: int
    has_more: bool
    is_complete: bool
    """False if more than 10,000 names of the account are not indexed yet, as for some minutes after
    so many were pushed at once: some of them are missing."""
    marker: str | UnsetType = UNSET
    """Where the next page begins; absent on the last one. A page may be short, or empty, and not
    the last: a request reads 2,000 entries of the index at most."""


class SearchAnswer(ResponseBody):
    """A page of matches: all repositories come before all tags."""

    repositories: Sequence[ResourceRef]
    """Repositories whose names contain the text, ordered by the name from the text on."""
    tags: Sequence[FoundTag]
    """Ordered by the name from the text on; equal ones by when they were first pushed."""
    meta: SearchMeta


@get(
    "/v1/repositories/search", opt={"action": "registry:DescribeRepositories", "query": SearchQuery}
)
async def search_repositories(ctx: Context) -> SearchAnswer:
    """Find the account's repositories and tags whose names contain a text.

    Also needs `registry:DescribeImages` on all repositories, for the tags.
    """
    query, account_id = ctx.query(SearchQuery), authorized_for_all(ctx)
    every = repository_crn(ctx.settings.region, account_id, "*")
    ctx.authorize(every, action="registry:DescribeImages")
    pager = ctx.pager(query)
    after = None if pager.position is None else MatchPosition(*pager.position)
    found = await ctx.database.read(search_names, account_id, query.text, after, query.limit)
    last = found.continue_after

    def reference(each: IndexedName) -> ResourceRef:
        assert each.repository_id is not None
        return reference_of(ctx, account_id, each.repository_id, each.repository)

    return SearchAnswer(
        repositories=[reference(each) for each in found.names if each.position.kind != "tag"],
        tags=[
            FoundTag(repository=reference(each), name=each.name)
            for each in found.names
            if each.position.kind == "tag"
        ],
        meta=SearchMeta(
            limit=query.limit,
            has_more=last is not None,
            marker=UNSET if last is None else pager.marker(last),
            is_complete=found.is_complete,
        ),
    )
