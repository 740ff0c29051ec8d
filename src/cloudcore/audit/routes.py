"""``/v1/audit-events``: who did what, when and from where."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import get
from litestar.params import FromPath
from msgspec import UNSET, Meta, UnsetType

from cloudcore.account_rows import handle_of
from cloudcore.audit import rows
from cloudcore.audit.log import AuditNeeds
from cloudcore.audit.rows import AuditFilter, AuditRow
from cloudcore.errors import InvalidInput, NotFound, invalid_field
from cloudcore.resource_names import Crn, Uuid, UuidParameter, lower_ids
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import ActingSource
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.organization_scope import authorize_organization
from cloudcore.web.pagination import Limit, Marker, PageQuery
from cloudcore.web.query import PLUS
from cloudcore.web.streams import StreamReply
from cloudcore.wire import LAST_MOMENT, RFC3339, ResponseBody, Timestamp, moment_of, rfc3339

PATH: Final = "/v1/audit-events"
JSON_LINES: Final = "application/jsonl"

_BATCH: Final = 500
_CRN: Final = "crn:"
_Text = Annotated[str, Meta(max_length=1024)]
_Moment = Annotated[Timestamp, PLUS]
_OrganizationId = Annotated[
    UuidParameter,
    Meta(description="For a person: an organization of the caller's, whose events are listed."),
]


class AuditScope(msgspec.Struct, kw_only=True):
    """The owner of the events."""

    organization_id: _OrganizationId | None = None


class AuditSelection(msgspec.Struct, kw_only=True):
    """The filter of the audit log."""

    who: Annotated[
        _Text,
        PLUS,
        Meta(description="CRN of a principal or of who is behind it, e-mail address, or name."),
    ] = ""
    action: Annotated[
        _Text, Meta(description="An action, or its beginning before a `*`: `iam:*`.")
    ] = ""
    resource: Annotated[
        _Text,
        PLUS,
        Meta(
            description="CRN of a resource, or the plain name of one of the kind that names mean"
            " here; or the beginning of either before a `*`."
        ),
    ] = ""
    outcome: Literal["succeeded", "refused"] | None = None
    since: _Moment | None = None
    until: Annotated[_Moment, Meta(description="The first moment that is not listed.")] | None = (
        None
    )
    organization_id: _OrganizationId | None = None


class AuditQuery(AuditSelection, kw_only=True):
    """A page of the audit log."""

    limit: Limit = 50
    marker: Marker = None


class AuditEventAnswer(ResponseBody):
    """An action that was done, or refused."""

    id: Uuid
    occurred_at: RFC3339
    last_occurred_at: RFC3339
    """The time of the last refusal; for an action that was done, the same as `occurred_at`."""
    times: int
    """How often it was refused within the hour; 1 for an action that was done."""
    action: str
    outcome: Literal["succeeded", "refused"]
    resources: list[str]
    """CRNs; for a refusal, the resource of the last attempt, if it is known."""
    principal: str | None
    """CRN of the caller; null for an unauthenticated client, or if the service itself acted."""
    source: ActingSource | None
    """The person or program behind the principal."""
    plane: str | None
    source_ip: str | None
    user_agent: str | None
    request_id: Uuid | None
    details: dict[str, Any]
    """Details of the action, such as the digests before and after."""


class OneAuditEvent(ResponseBody):
    """The body of an answer: an event."""

    event: AuditEventAnswer


class AuditMeta(ResponseBody):
    """The metadata of a page of events, without their total number."""

    limit: int
    has_more: bool
    """More may follow, even after a page without events: each request looks at a limited number of
    events."""
    marker: str | UnsetType = UNSET
    """Where the next page begins; absent on the last one."""


class ManyAuditEvents(ResponseBody):
    """A page of events, newest first."""

    events: Sequence[AuditEventAnswer]
    meta: AuditMeta


async def _owner(ctx: RequestContext, needs: AuditNeeds, organization_id: str | None) -> str:
    """Authorize the route's action; return the id of the account or organization to list."""
    if organization_id is None:
        account_id = account_of(ctx)
        ctx.authorize(str(Crn("audit", ctx.settings.region, account_id, "event", "*")))
        return account_id
    return await authorize_organization(ctx, organization_id, needs.membership_policy)


async def _filter(
    ctx: RequestContext, needs: AuditNeeds, owner_id: str, query: AuditSelection
) -> AuditFilter:
    """Convert the query to a filter of rows.

    Raise `InvalidInput` if no event can have the query's action, or its resource is malformed.
    """
    for name, text in (("action", query.action), ("resource", query.resource)):
        if "*" in text[:-1]:
            raise InvalidInput(f"{name} has a * at its end only", field=name, reason="malformed")
    if query.action:
        ctx.vocabulary.check_recorded(query.action, "action")
    until = LAST_MOMENT if query.until is None else moment_of(query.until)
    return AuditFilter(
        who=await _with_id(ctx, owner_id, query.who.lower() if "@" in query.who else query.who),
        action=query.action,
        resource=await _with_id(ctx, owner_id, _resource(needs, owner_id, query)),
        outcome=query.outcome or "",
        since=0 if query.since is None else moment_of(query.since),
        until=until,
    )


def _resource(needs: AuditNeeds, owner_id: str, query: AuditSelection) -> str:
    """Convert the query's resource, a CRN or a plain name, to a CRN or a pattern ending in ``*``.

    Raise `InvalidInput` for a plain name if the query is for an organization.
    """
    text = query.resource
    if text in ("", "*") or text.startswith(_CRN):
        return text
    if query.organization_id is not None:
        raise invalid_field(
            "resource",
            "events of an organization are found by the CRN of a resource",
            "malformed_crn",
        )
    return needs.named_resource(owner_id, text)


async def _with_id(ctx: RequestContext, owner_id: str, text: str) -> str:
    """Return a CRN or its beginning as it is stored; other texts are unchanged.

    Ids are stored in lower case, and the account by its id, which may be given by its handle.
    """
    if not text.startswith(_CRN):
        return text
    parts = lower_ids(text).split(":", 4)
    named = parts[3] if len(parts) > 4 else ""
    if named and named == await ctx.database.read(handle_of, owner_id):
        parts[3] = owner_id
    return ":".join(parts)


@get(PATH, opt={"action": "audit:ListAuditEvents", "query": AuditQuery, "statuses": (404,)})
async def list_audit_events(ctx: Context, needs: Needs[AuditNeeds]) -> ManyAuditEvents:
    """List the account's events, newest first: each change, sign-in and refusal.

    With `organization_id`, an owner of an organization lists the organization's events. Refusals
    are counted: there is at most one event for each principal, source, action and hour.
    """
    query = ctx.query(AuditQuery)
    owner_id = await _owner(ctx, needs, query.organization_id)
    wanted = await _filter(ctx, needs, owner_id, query)
    pager = ctx.pager(
        PageQuery(limit=query.limit, marker=query.marker), owner_id, *map(str, wanted)
    )
    after = None if pager.position is None else (pager.position[0], pager.position[1])
    page = await ctx.database.read(rows.list_events, owner_id, wanted, after, query.limit)
    marker = UNSET if page.after is None else pager.marker(page.after)
    return ManyAuditEvents(
        events=[_answer(row) for row in page.rows],
        meta=AuditMeta(limit=query.limit, has_more=page.after is not None, marker=marker),
    )


@get(
    PATH + "/export",
    opt={
        "action": "audit:ListAuditEvents",
        "query": AuditSelection,
        "media_types": (JSON_LINES,),
        "statuses": (404,),
    },
)
async def export_audit_events(ctx: Context, needs: Needs[AuditNeeds]) -> StreamReply:
    """Send all events that match the filter as JSON lines, newest first."""
    query = ctx.query(AuditSelection)
    owner_id = await _owner(ctx, needs, query.organization_id)
    lines = _lines(needs, owner_id, await _filter(ctx, needs, owner_id, query))
    return StreamReply(lines, headers=[(b"content-type", JSON_LINES.encode())])


@get(
    PATH + "/{event_id:str}",
    opt={"action": "audit:GetAuditEvent", "query": AuditScope},
)
async def get_audit_event(
    event_id: FromPath[str], ctx: Context, needs: Needs[AuditNeeds]
) -> OneAuditEvent:
    """Return an event of the account, or of an organization of the caller's."""
    owner_id = await _owner(ctx, needs, ctx.query(AuditScope).organization_id)
    row = await ctx.database.read(rows.find_event, owner_id, event_id)
    if row is None:
        raise NotFound("there is no such event, or it was older than events are kept")
    return OneAuditEvent(event=_answer(row))


async def _lines(
    needs: AuditNeeds, owner_id: str, wanted: AuditFilter
) -> AsyncGenerator[bytes, None]:
    """Yield the matching events as JSON lines, one page at a time."""
    after: tuple[int, str] | None = None
    encoder = msgspec.json.Encoder()
    while True:
        page = await needs.database.read(rows.list_events, owner_id, wanted, after, _BATCH)
        yield b"".join(encoder.encode(_answer(row)) + b"\n" for row in page.rows)
        after = page.after
        if after is None:
            return


def _answer(row: AuditRow) -> AuditEventAnswer:
    resources = [row.resource] if row.resource else []
    if row.resources is not None:
        resources = msgspec.json.decode(row.resources, type=list[str])
    source = None
    if row.source_crn is not None:
        source = ActingSource(
            crn=row.source_crn, name=row.source_name or "", session_name=row.session_name
        )
    return AuditEventAnswer(
        id=row.id,
        occurred_at=rfc3339(row.occurred_at),
        last_occurred_at=rfc3339(row.last_at),
        times=row.times,
        action=row.action,
        outcome="refused" if row.outcome == "refused" else "succeeded",
        resources=resources,
        principal=row.principal or None,
        source=source,
        plane=row.plane,
        source_ip=row.source_ip,
        user_agent=row.user_agent,
        request_id=row.request_id,
        details=msgspec.json.decode(row.details, type=dict[str, Any]),
    )
