"""``/v1/repositories/{id}/tags``: list, show, set and delete tags, and their history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from litestar import Request as LitestarRequest
from litestar import get
from litestar.params import FromPath, JSONBody

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ActingSource
from cloudcore.web.context import Reply
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody
from registry.control.visible_repositories import (
    PATH,
    admit,
    authorized_own,
    authorized_visible_repository,
    change_of,
)
from registry.errors import DigestInvalid, TagInvalid
from registry.metadata.repositories.repository import VisibleRepository
from registry.metadata.tags.history import TagEvent, count_tag_events, list_tag_events
from registry.metadata.tags.pointers import TagDetails, find_tag
from registry.oci.digest import Digest
from registry.oci.reference import parse_tag
from registry.services.tags import details as tag_details
from registry.services.tags import pointers
from registry.services.tags.details import tag_precondition
from registry.services.tags.pointers import Precondition, is_immutable

_TAGS: Final = f"{PATH}/tags"
_TAG: Final = f"{_TAGS}/{{tag:str}}"


class TagQuery(PageQuery):
    """The filter of a list of tags."""

    prefix: str = ""
    """Only tags that begin with this text; there are no wildcards."""


class PutTag(RequestBody):
    """The image to point a tag to."""

    digest: str
    """Digest of an image in the same repository."""


class TagAnswer(ResponseBody):
    """A tag."""

    name: str
    digest: str
    """sha256 digest of the image it points to."""
    image_id: Uuid
    mutable: bool
    """True if it may be moved, and deleted without its image."""
    created_at: RFC3339
    updated_at: RFC3339
    """When it last moved."""


def _answer(found: VisibleRepository, tag: TagDetails) -> TagAnswer:
    mutable = not is_immutable(found.repository, tag.name)
    return answer_of(TagAnswer, tag, image_id=tag.manifest_id, mutable=mutable)


_TAG_ANSWERS: Final = RecordAnswers(TagAnswer, "tag", _answer)


@_TAG_ANSWERS.lists(_TAGS, "registry:DescribeImages", TagQuery)
async def list_tags(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List a repository's tags in byte order."""
    found = await authorized_visible_repository(ctx, repository_id)
    query = ctx.query(TagQuery)
    pager = ctx.pager(query)
    (after,) = pager.position or ("",)
    rows, total = await ctx.database.read(
        tag_details.list_tag_page, found, query.prefix, after, pager.wanted
    )
    cut, meta = pager.cut(rows, total, key=lambda row: (row.name,))
    return _TAG_ANSWERS.many([_answer(found, row) for row in cut], meta)


@_TAG_ANSWERS.gets(_TAG, "registry:DescribeImages")
async def get_tag(repository_id: FromPath[str], tag: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a tag."""
    found = await authorized_visible_repository(ctx, repository_id)
    return _TAG_ANSWERS.one(found, await ctx.database.read(tag_details.get_tag, found, tag))


@_TAG_ANSWERS.puts(_TAG, "registry:PushImage", admits=admit, statuses=(201, 409), conditional=True)
async def put_tag(
    repository_id: FromPath[str],
    tag: FromPath[str],
    data: JSONBody[PutTag],
    request: LitestarRequest[Any, Any, Any],
    ctx: Context,
) -> Reply[ResponseBody]:
    """Create a tag of an image in the repository, or move it to that image.

    The entity tag is the digest that the tag points to, in quotes: `If-Match: "sha256:..."` moves
    it only from that digest, `If-None-Match: *` creates it and never moves it.
    """
    found = await authorized_visible_repository(ctx, repository_id)
    name, digest = _checked(tag, data.digest)
    pointed = await ctx.database.write(
        tag_details.put_tag, found, name, digest, _precondition(request), change_of(ctx)
    )
    body = msgspec.json.encode(_TAG_ANSWERS.one(found, pointed.tag))
    return Reply(201 if pointed.is_new else 200, body)


def _precondition(request: LitestarRequest[Any, Any, Any]) -> Precondition | None:
    return tag_precondition(_header(request, "if-match"), _header(request, "if-none-match"))


def _header(request: LitestarRequest[Any, Any, Any], name: str) -> str | None:
    """Return all lines of a list header, joined with commas (RFC 9110 §5.3), or None."""
    return ", ".join(lines) if (lines := request.headers.getall(name, [])) else None


def _checked(tag: str, digest: str) -> tuple[str, Digest]:
    try:
        return parse_tag(tag), Digest.parse(digest)
    except TagInvalid as error:
        raise InvalidInput(error.message, field="tag", reason="malformed") from None
    except DigestInvalid as error:
        raise InvalidInput(error.message, field="digest", reason="malformed") from None


@deletes(_TAG, "registry:DeleteImage", statuses=(409,), conditional=True)
async def delete_tag(
    repository_id: FromPath[str],
    tag: FromPath[str],
    request: LitestarRequest[Any, Any, Any],
    ctx: Context,
) -> None:
    """Delete a tag, not its image; with `If-Match: "sha256:..."` only if it points there."""
    found = await authorized_visible_repository(ctx, repository_id)
    await ctx.database.write(
        pointers.delete_tag, found, tag, _precondition(request), change_of(ctx)
    )


class TagChange(ResponseBody):
    """A change of a tag."""

    tag: str
    action: str
    """`created`, `moved`, `deleted` or `restored`."""
    digest: str | None
    previous_digest: str | None
    principal: str | None
    """CRN of the principal that made the change; null for an unauthenticated client."""
    source: ActingSource | None
    """The person or service account behind the principal; null if unknown or none."""
    occurred_at: RFC3339


class ManyTagChanges(ResponseBody):
    """A page of changes, newest first."""

    history: Sequence[TagChange]
    meta: PageMeta


@get(f"{_TAG}/history", opt={"action": "registry:DescribeImages", "query": PageQuery})
async def get_tag_history(
    repository_id: FromPath[str], tag: FromPath[str], ctx: Context
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
    return ManyTagChanges(
        history=[answer_of(TagChange, each, principal=each.principal or None) for each in found],
        meta=meta,
    )
