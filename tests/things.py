"""A small family that uses all of the kernel: things, their parts, and the weather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType
from sqlalchemy import (
    Column,
    ForeignKey,
    MetaData,
    Select,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.schema import ByteOrdered, Id, Moment
from cloudcore.db.statement import Statement, page
from cloudcore.errors import Conflict, NotFound
from cloudcore.family import Family, Runtime
from cloudcore.iam.policy import ResourceRules, policy_of
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.jobs.kinds import Done, JobKind, Next
from cloudcore.jobs.queue import Job
from cloudcore.jobs.schedule import Scheduled
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery, UuidPage
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, Timestamp, moment_of, rfc3339

T = TypeVar("T")

# Not in the schema of the product, so that its migrations know nothing of it.
things_metadata = MetaData()
things = Table(
    "things",
    things_metadata,
    Column("id", Id, primary_key=True),
    Column("account_id", Id, nullable=False),
    Column("name", ByteOrdered, nullable=False),
    Column("description", Text),
    Column("ready_at", Moment, nullable=False),
    UniqueConstraint("account_id", "name"),
)
parts = Table(
    "parts",
    things_metadata,
    Column("id", Id, primary_key=True),
    Column("thing_id", ForeignKey("things.id", ondelete="CASCADE"), nullable=False),
    Column("secret", Text, nullable=False),
)
_t = things.c

ADD: Final = Statement(
    insert(things)
    .values({name: bindparam(name) for name in things.c.keys()})  # noqa: SIM118 - Core's
    .on_conflict_do_nothing()
)
ADD_PART: Final = Statement(
    insert(parts).values(
        id=bindparam("id"), thing_id=bindparam("thing_id"), secret=bindparam("secret")
    )
)
_IS_THING = (_t.id == bindparam("thing_id"), _t.account_id == bindparam("of_account"))
FIND: Final = Statement(select(things).where(*_IS_THING))
DESCRIBE: Final = Statement(
    things.update().where(*_IS_THING).values(description=bindparam("description"))
)
DELETE: Final = Statement(things.delete().where(*_IS_THING))
FORGET: Final = Statement(things.delete().where(_t.ready_at <= bindparam("before")))


def _matching(*columns: Any) -> Select[Any]:  # noqa: ANN401 - Core's
    return select(*columns).where(
        _t.account_id == bindparam("of_account"),
        func.substr(_t.name, text("1"), func.length(bindparam("prefix"))) == bindparam("prefix"),
    )


COUNT: Final = Statement(_matching(func.count()))
LIST: Final = Statement(
    page(
        _matching(*things.c)
        .where(
            or_(
                _t.name > bindparam("after_name"),
                (_t.name == bindparam("after_name")) & (_t.id > bindparam("after_id")),
            )
        )
        .order_by(_t.name, _t.id)
    )
)
LIST_BY_ID: Final = Statement(
    page(
        select(things)
        .where(_t.account_id == bindparam("of_account"), _t.id < bindparam("before_id"))
        .order_by(_t.id.desc())
    )
)


THING_RULES: Final = ResourceRules("a thing", frozenset({"test:GetShared"}))


class Thing(ResponseBody):
    id: str
    name: str
    description: str | None
    ready_at: RFC3339


class OneThing(ResponseBody):
    thing: Thing


class ManyThings(ResponseBody):
    things: Sequence[Thing]
    meta: PageMeta


class Part(ResponseBody):
    id: str
    secret: str


class OnePart(ResponseBody):
    part: Part


class CreateThing(RequestBody):
    name: Annotated[str, Meta(min_length=1, max_length=63, pattern=r"\A[a-z_%-]+\Z")]
    description: Annotated[str, Meta(max_length=200)] | None = None
    """For people."""
    ready_at: Timestamp | None = None
    size: Annotated[int, Meta(ge=1, le=10)] = 1
    colour: Literal["red", "blue"] = "red"
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class UpdateThing(RequestBody):
    description: str | UnsetType | None = UNSET


class CreatePart(RequestBody):
    pass


class ListThings(PageQuery):
    name_prefix: str = ""
    """Things whose names begin so."""
    colour: Literal["red", "blue"] | None = None
    deep: bool = False


class ListByAge(UuidPage):
    pass


class Weather(ResponseBody):
    is_fine: bool


def _wire(row: Sequence[Any]) -> Thing:
    identity, _, name, description, ready_at = row
    return Thing(id=identity, name=name, description=description, ready_at=rfc3339(ready_at))


def _crn(ctx: RequestContext, name: str) -> str:
    assert ctx.caller is not None
    return f"crn:test:local:{ctx.caller.account_id}:thing/{name}"


def _account(ctx: RequestContext) -> str:
    assert ctx.caller is not None
    assert ctx.caller.account_id is not None
    return ctx.caller.account_id


def add_thing(
    connection: Connection, identity: str, account_id: str, data: CreateThing, ready_at: int
) -> Thing:
    row = (identity, account_id, data.name, data.description, ready_at)
    if not connection.execute(ADD, **dict(zip(things.c.keys(), row, strict=True))):
        raise Conflict("there is a thing of this name", name=data.name)
    return _wire(row)


def find_thing(connection: Connection, account_id: str, thing_id: str) -> Sequence[Any]:
    found = connection.row(FIND, of_account=account_id, thing_id=thing_id)
    if found is None:
        raise NotFound("there is no such thing")
    return found


@post(
    "/v1/things",
    status_code=201,
    opt={"action": "test:CreateThing", "idempotent": True},
)
async def create_thing(
    data: JSONBody[CreateThing], ctx: NamedDependency[RequestContext]
) -> Reply[OneThing]:
    """Make a thing.

    Its name is unique in the account.
    """
    ctx.authorize(_crn(ctx, data.name))
    ready_at = moment_of(data.ready_at) if data.ready_at else ctx.clock()
    return await ctx.commit(
        add_thing,
        ctx.new_id(),
        _account(ctx),
        data,
        ready_at,
        wrap=lambda thing: OneThing(thing=thing),
        location=lambda thing: f"/v1/things/{thing.id}",
    )


@get("/v1/things", opt={"action": "test:ListThings", "query": ListThings})
async def list_things(ctx: NamedDependency[RequestContext]) -> ManyThings:
    """List things by name."""
    query = ctx.query(ListThings)
    ctx.authorize(_crn(ctx, "*"))
    pager = ctx.pager(query)
    name, identity = pager.position or ("", "")
    whose = {"of_account": _account(ctx), "prefix": query.name_prefix}

    def read(connection: Connection) -> tuple[Sequence[Any], int]:
        rows = connection.rows(
            LIST, **whose, after_name=name, after_id=identity, limit=pager.wanted
        )
        counted = connection.row(COUNT, **whose)
        assert counted is not None
        return rows, counted[0]

    rows, total = await ctx.database.read(read)
    found, meta = pager.cut(rows, total, key=lambda row: (row[2], row[0]))
    return ManyThings(things=[_wire(row) for row in found], meta=meta)


@get("/v1/things-by-age", opt={"action": "test:ListThings", "query": ListByAge})
async def list_things_by_age(ctx: NamedDependency[RequestContext]) -> ManyThings:
    """List things, the newest first."""
    query = ctx.query(ListByAge)
    ctx.authorize(_crn(ctx, "*"))
    pager = ctx.pager(query)
    (before,) = pager.position or ("g",)
    rows = await ctx.database.read(
        lambda connection: connection.rows(
            LIST_BY_ID, of_account=_account(ctx), before_id=before, limit=pager.wanted
        )
    )
    found, meta = pager.cut(rows, total=-1, key=lambda row: (row[0],))
    return ManyThings(things=[_wire(row) for row in found], meta=meta)


@get("/v1/things/{thing_id:str}", opt={"action": "test:GetThing"})
async def get_thing(thing_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> OneThing:
    """Return a thing."""
    found = await ctx.database.read(find_thing, _account(ctx), thing_id)
    ctx.authorize(_crn(ctx, found[2]))
    return OneThing(thing=_wire(found))


@patch("/v1/things/{thing_id:str}", opt={"action": "test:UpdateThing"})
async def update_thing(
    thing_id: FromPath[str], data: JSONBody[UpdateThing], ctx: NamedDependency[RequestContext]
) -> Reply[OneThing]:
    """Change the description of a thing; null takes it away."""
    found = await ctx.database.read(find_thing, _account(ctx), thing_id)
    ctx.authorize(_crn(ctx, found[2]))

    def change(connection: Connection, account_id: str) -> Thing:
        if data.description is not UNSET:
            connection.execute(
                DESCRIBE, of_account=account_id, thing_id=thing_id, description=data.description
            )
        return _wire(find_thing(connection, account_id, thing_id))

    return await ctx.commit(change, _account(ctx), wrap=lambda thing: OneThing(thing=thing))


@delete("/v1/things/{thing_id:str}", opt={"action": "test:DeleteThing"})
async def delete_thing(thing_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> None:
    """Delete a thing."""
    found = await ctx.database.read(find_thing, _account(ctx), thing_id)
    ctx.authorize(_crn(ctx, found[2]))
    await ctx.database.write(
        lambda connection: connection.execute(DELETE, of_account=_account(ctx), thing_id=thing_id)
    )


@post(
    "/v1/things/{thing_id:str}/parts",
    status_code=201,
    opt={"action": "test:CreatePart", "idempotent": True},
)
async def create_part(
    thing_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
    data: JSONBody[CreatePart | None] = None,
) -> Reply[OnePart]:
    """Make a part, whose secret is shown once."""
    found = await ctx.database.read(find_thing, _account(ctx), thing_id)
    ctx.authorize(_crn(ctx, found[2]))
    part = Part(id=ctx.new_id(), secret=f"secret of {ctx.request_id}")

    def change(connection: Connection) -> Part:
        connection.execute(ADD_PART, id=part.id, thing_id=thing_id, secret=part.secret)
        return part

    return await ctx.commit(change, wrap=lambda made: OnePart(part=made))


@get(
    "/v1/test-templates/{template_id:str}",
    opt={"action": "test:GetThing", "malformed_id": 400, "statuses": (404,)},
)
async def get_test_template(
    template_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneThing:
    """Return a template; there is none."""
    raise NotFound("there is no such thing")


@get("/v1/weather", opt={"action": None, "public": True, "rate_limited": True})
async def get_weather() -> Weather:
    """Return the weather."""
    return Weather(is_fine=True)


@get("/v1/shared/{thing_id:str}", opt={"action": "test:GetShared"})
async def get_shared(thing_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> OneThing:
    """Return a thing; the policy of the one called ``open`` shows it to the whole account."""
    found = await ctx.database.read(find_thing, _account(ctx), thing_id)
    document = {
        "effect": "allow",
        "principals": [_account(ctx)],
        "actions": ["test:GetShared"],
    }
    policy = policy_of({"version": "1", "statements": [document]}, THING_RULES)
    ctx.authorize(_crn(ctx, found[2]), resource_policy=policy if found[2] == "open" else None)
    return OneThing(thing=_wire(found))


@get("/v1/unasked", opt={"action": "test:GetThing"})
async def unasked() -> Weather:
    """Forget to ask for permission."""
    return Weather(is_fine=True)


@post("/v1/uncommitted", opt={"action": "test:CreateThing", "idempotent": True})
async def uncommitted(ctx: NamedDependency[RequestContext]) -> Reply[Weather]:
    """Forget to commit."""
    ctx.authorize(_crn(ctx, "x"))
    return Reply(201, b"{}")


@post("/v1/unasked", opt={"action": "test:CreateThing", "idempotent": True})
async def unasked_commit(ctx: NamedDependency[RequestContext]) -> Reply[OneThing]:
    """Commit before asking for permission."""
    data = CreateThing(name="unasked")
    return await ctx.commit(
        add_thing, ctx.new_id(), _account(ctx), data, 0, wrap=lambda thing: OneThing(thing=thing)
    )


@get("/v1/starved", opt={"action": None})
async def starved() -> None:
    """Need more memory than there is."""
    raise MemoryError


@get("/v1/broken", opt={"action": None})
async def broken() -> None:
    """Fail in a way nobody foresaw."""
    raise RuntimeError("secret of the house")


HANDLERS: Final[list[HTTPRouteHandler]] = [
    create_thing, list_things, list_things_by_age, get_thing, update_thing, delete_thing,
    create_part, get_test_template, get_weather, get_shared,
]  # fmt: skip


async def grow(job: Job) -> Next | Done:
    """Do nothing, at once."""
    return Done()


async def look() -> None:
    """Do nothing, again and again."""


def forget_old(tx: Connection, now: int) -> int:
    """Delete the things that were ready long before `now`."""
    return tx.execute(FORGET, before=now - 3600 * MICROSECONDS)


THINGS: Final = Family[object](
    name="test",
    runs=Runtime(
        routes=HANDLERS,
        job_kinds=lambda _: (JobKind(name="test.grow", step=grow),),
        schedule=lambda _: (Scheduled("test.look", 3600, look),),
        expiry=(forget_old,),
    ),
    resource_kinds=(
        ResourceKind(
            crn="crn:test:local:<account>:thing/<name>",
            actions=(
                "test:CreatePart",
                "test:CreateThing",
                "test:DeleteThing",
                "test:GetShared",
                "test:GetThing",
                "test:ListThings",
                "test:UpdateThing",
            ),
            rules=THING_RULES,
        ),
    ),
)
FAULTY: Final[list[HTTPRouteHandler]] = [unasked, uncommitted, unasked_commit, broken, starved]
