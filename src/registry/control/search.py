"""``/v1/repositories/search``: find repositories and tags by a part of their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from litestar import get
from litestar.di import NamedDependency
from msgspec import Meta

from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.references import ResourceRef
from cloudcore.wire import ResponseBody
from registry.metadata.repositories.names import RepositoryName
from registry.services.access import repository_crn
from registry.services.repositories.search import search_names


class SearchQuery(msgspec.Struct):
    """What to search for."""

    text: Annotated[str, Meta(min_length=1, max_length=128)]
    """A part of a name, in any case."""
    after: Annotated[str, Meta(max_length=210)] = ""
    """Search the repositories after this name: `continue_after` of the answer before."""


class FoundTag(ResponseBody):
    """A tag whose name contains the text."""

    repository: ResourceRef
    name: str


class SearchAnswer(ResponseBody):
    """What one request has found, of a bounded number of names that it has read."""

    repositories: Sequence[ResourceRef]
    """Those whose names contain the text, by name; 100 at most."""
    tags: Sequence[FoundTag]
    """By repository, then in byte order; 100 at most."""
    searched_repositories: int
    searched_tags: int
    skipped_tags: int
    """Tags of the searched repositories that are not told: one has more than 20,000, or more than
    100 were found."""
    continue_after: str | None
    """For `after` of the next request; null if all repositories were searched."""


@get(
    "/v1/repositories/search",
    opt={"action": "registry:DescribeRepositories", "query": SearchQuery},
)
async def search_repositories(ctx: NamedDependency[RequestContext]) -> SearchAnswer:
    """Find the account's repositories and tags whose names contain a text, a part at a time.

    It also needs `registry:DescribeImages` on all repositories, for the tags.
    """
    account_id, region = account_of(ctx), ctx.settings.region
    query = ctx.query(SearchQuery)
    everything = repository_crn(region, account_id, "*")
    ctx.authorize(everything)
    ctx.authorize(everything, action="registry:DescribeImages")
    found = await ctx.database.read(search_names, account_id, query.text, query.after)

    def reference(repository: RepositoryName) -> ResourceRef:
        crn = repository_crn(region, account_id, repository.name)
        return ResourceRef(id=repository.id, crn=crn, name=repository.name)

    return SearchAnswer(
        repositories=[reference(each) for each in found.repositories],
        tags=[
            FoundTag(repository=reference(each.repository), name=each.name) for each in found.tags
        ],
        searched_repositories=found.searched_repositories,
        searched_tags=found.searched_tags,
        skipped_tags=found.skipped_tags,
        continue_after=found.continue_after,
    )


HANDLERS: Final = (search_repositories,)
