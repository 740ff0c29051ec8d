"""The standard methods of a resource: create, list, get, update and delete (AIP-131 to 135).

Each method has a handler of requests (``answer_…``); those that change something also have a
function for the transaction. `cloudcore.resources.routes` makes the routes. Custom methods are
handlers written by the family, which get the record by `authorized` and answer with `one`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from msgspec import structs

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.resource_names import check_tags
from cloudcore.resources.bodies import Bodies, Composite
from cloudcore.resources.resource import Record, Reference, Resource, Verb
from cloudcore.resources.rows import Rows
from cloudcore.web.answers import RecordAnswers
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import read_page
from cloudcore.wire import RequestBody, ResponseBody, changes_of, moment_of

R = TypeVar("R", bound=Record)
C = TypeVar("C")
_UNRESOLVED: Final = Reference("")
"""Stands for a reference until policies have allowed the creation; it is resolved only then."""


class Referrer(NamedTuple):
    """Another kind of resource, whose `field` may refer to a record of these `Methods`.

    Such a reference prevents the deletion of the record.
    """

    rows: Rows[Any]
    field: str


@dataclass(frozen=True)  # no slots: cached properties
class Methods(Generic[R]):
    """The standard methods of a resource."""

    rows: Rows[R]
    _: KW_ONLY
    as_of: Callable[[R, int], R] = lambda found, _now: found
    """Returns a record as answers show it at a moment."""
    check: Callable[[R, R | None, int], R] = lambda new, _old, _now: new
    """Completes or refuses a new or changed record; a pure function. It gets the record, the one
    before it (or None) and the moment of the request. It is also called for a request that changes
    nothing. It is called twice for a new record with references or composite fields: before
    policies have allowed the creation, without these fields, and afterwards with them."""
    prepare: Callable[[RequestContext, R], Awaitable[R]] | None = None
    """Completes a new record, once policies have allowed it, by slow work such as making a key."""
    before_lock: Callable[[Connection, R, int], None] = lambda _tx, _found, _now: None
    """Called before a change or deletion locks the record, such as `Work.wake`: steps lock the job
    before the record."""
    before_save: Callable[[Connection, R, R | None], R] = lambda _tx, new, _old: new
    """Completes or refuses a new or changed record in the transaction that stores it."""
    before_delete: Callable[[Connection, R], None] = lambda _tx, _found: None
    """Refuses a deletion, or deletes what belongs to the record."""
    removal: Callable[[Connection, R, int], None] | None = None
    """Called by a deletion in place of deleting the row, such as `Work.delete`."""
    after: Callable[[Connection, R, R | None, Any], None] | None = None
    """Called at the end of the transaction of a change; an exception undoes the change. It gets the
    record that was passed to the change, the resulting record (None if it was deleted) and the
    family's needs."""
    around: Callable[[Callable[[Any], Awaitable[Any]], Any], Awaitable[Any]] = (
        lambda change, needs: change(needs)
    )
    """Runs a change with the family's needs. If `after` undid the change for a reason that this
    function can remove, it removes the reason and runs the change again."""
    composites: Sequence[Composite[R, Any]] = ()
    targets: Mapping[str, Rows[Any]] = field(default_factory=dict)
    """The rows to which reference fields refer, by field."""
    referrers: Sequence[Referrer] = ()
    one_at_a_time: frozenset[str] = frozenset()
    """Fields whose changes run one at a time within an account."""
    docs: Mapping[Verb, str] = field(default_factory=dict)
    """Texts of methods in the OpenAPI document, in place of the usual ones."""
    statuses: Mapping[Verb, tuple[int, ...]] = field(default_factory=dict)
    """Statuses of methods in the OpenAPI document, besides the usual ones."""

    @property
    def of(self) -> Resource[R]:
        """Return the description of the resource."""
        return self.rows.of

    @cached_property
    def bodies(self) -> Bodies[R]:
        """Return the types of bodies."""
        return Bodies(self.of, self.composites)

    @property
    def answers(self) -> RecordAnswers[ResponseBody]:
        """Return the types of answers, and the decorators of routes that answer with them."""
        return self.bodies.answers

    def one(self, found: R, **more: object) -> ResponseBody:
        """Return the answer for a record; `more` has values of composite fields, by name."""
        return self.answers.one(found, **more)

    def at(self, now: int) -> Callable[[R], ResponseBody]:
        """Return a function that makes the answer for a record, as of the moment `now`."""
        return lambda found: self.one(self.as_of(found, now))

    @staticmethod
    def details_if_changed(now: int) -> Callable[[R], Mapping[str, object] | None]:
        """Return a function for the `details` of `RequestContext.commit`.

        It returns None for a record that was not changed at `now`.
        """
        return lambda found: {} if found.updated_at == now else None

    def location(self, made: R) -> str:
        """Return the path of a record's resource, for the ``Location`` header."""
        return f"{self.of.path}/{made.id}"

    # Changes, each in a transaction

    def create(self, tx: Connection, new: R) -> R:
        """Insert a record.

        Raises:
            NotFound: a resource to which the record refers was deleted meanwhile.
            Conflict: the record's key is taken.
            QuotaExceeded: the account has reached its quota.

        """
        lock_account(tx, new.account_id)
        use = self.rows.check_room(tx, new.account_id, new.region)
        self._hold_targets(tx, new, None)
        made = self.rows.add(tx, self.before_save(tx, new, None))
        self.rows.counted.emit_level(tx, new.account_id, use, new.created_at)
        return made

    def update(self, tx: Connection, found: R, changes: Mapping[str, Any], now: int) -> R:
        """Change fields of a record; if they already have these values, change nothing.

        Raise `NotFound` if the record, or a resource to which it refers, was deleted.
        """
        if not self.one_at_a_time.isdisjoint(changes):
            lock_account(tx, found.account_id)
        self.before_lock(tx, found, now)
        old = self.rows.lock(tx, found.account_id, found.id)
        changed = self.check(structs.replace(old, **changes), old, now)
        if changed == old:
            return old
        self._hold_targets(tx, changed, old)
        changed = structs.replace(changed, updated_at=now)
        return self.rows.save(tx, self.before_save(tx, changed, old))

    def remove(self, tx: Connection, found: R, now: int) -> None:
        """Delete a record.

        Raise `NotFound` if the record was deleted meanwhile, `Conflict` if another resource refers
        to it.
        """
        self.before_lock(tx, found, now)
        old = self.rows.lock(tx, found.account_id, found.id)
        for rows, referring in self.referrers:
            name = rows.name_of_one_referring(tx, referring, old.account_id, old.id)
            if name is not None:
                raise Conflict(
                    f"the {rows.of.noun} {name} refers to it; change or delete that first",
                    reason="is_referred_to",
                    **{rows.of.one: name},
                )
        self.before_delete(tx, old)
        (self.removal or self.rows.remove)(tx, old, now)

    def _hold_targets(self, tx: Connection, new: R, old: R | None) -> None:
        """Prevent the deletion of resources to which a record newly refers, until `tx` ends.

        Raise `NotFound` if one was deleted since the request named it. A foreign key would not
        detect that for a kind that keeps the rows of deleted resources.
        """
        for name, rows in self.targets.items():
            meant = getattr(new, name)
            if meant is None or (old is not None and meant == getattr(old, name)):
                continue
            if rows.hold(tx, new.account_id, meant.id) is None:
                raise rows.missing()

    def _followed(self, change: Callable[..., C], needs: object) -> Callable[..., C]:
        """Return a change that also calls `after` at its end, if there is one."""
        if (after := self.after) is None:
            return change

        def followed(tx: Connection, found: R, *args: Any) -> C:  # noqa: ANN401 - as of `change`
            made = change(tx, found, *args)
            after(tx, found, cast("R | None", made), needs)
            return made

        return followed

    # What requests give

    async def authorized(self, ctx: RequestContext, found_id: str) -> R:
        """Return a resource of the caller's account.

        Raise `NotFound` if the account has none with this id, `AccessDenied` unless policies allow
        the action.
        """
        region = ctx.settings.region
        found = await ctx.database.read(self.rows.get, account_of(ctx), region, found_id)
        ctx.authorize(self.of.crn_of(found))
        return found

    def given(self, data: RequestBody) -> dict[str, Any]:
        """Return the record's fields that a request sets, checked without the database."""
        values = changes_of(data, self.bodies.create)
        if "tags" in values:
            check_tags(values["tags"])
        for name, described in self.of.fields.items():
            if described.is_moment and values.get(name) is not None:
                values[name] = moment_of(values[name])
            elif described.is_reference and described.is_optional and values.get(name) == "":
                values[name] = None  # an empty string means no reference
        return values

    def new(self, ctx: RequestContext, values: Mapping[str, Any]) -> R:
        """Return a new record, not stored yet; raise `AccessDenied` if policies refuse it."""
        now = ctx.clock()
        made = self.check(
            self.of.record(
                id=ctx.new_id(),
                account_id=account_of(ctx),
                region=ctx.settings.region,
                created_at=now,
                updated_at=now,
                **values,
            ),
            None,
            now,
        )
        self.of.check_key(getattr(made, self.of.key))
        ctx.authorize(self.of.crn_of(made))
        return made

    async def resolved(self, ctx: RequestContext, values: dict[str, Any]) -> dict[str, Any]:
        """Return `values` as a record has them: look up references, replace composite fields."""
        for part in self.bodies.composites:
            if part.resolve is not None and part.name in values:
                values |= await part.resolve(ctx, values.pop(part.name))
        for name, rows in self.targets.items():
            if isinstance(values.get(name), str):
                found = await ctx.database.read(
                    rows.resolve,
                    account_of(ctx),
                    ctx.settings.region,
                    name,
                    values[name],
                    ctx.right_to(self.of.refers[name].action),
                )
                values[name] = Reference(found.id, getattr(found, rows.of.key))
        return values

    # What answers requests

    async def answer_create(
        self, ctx: RequestContext, data: RequestBody, needs: object = None
    ) -> Reply[ResponseBody]:
        """Create a resource as a request describes."""
        values = self.given(data)
        parts = {part.name: values.pop(part.name) for part in self.bodies.composites if part.given}
        named = {name: values[name] for name in self.targets if values.get(name) is not None}
        new = self.new(ctx, values | dict.fromkeys(named, _UNRESOLVED))
        if found := await self.resolved(ctx, parts | named):
            new = self.check(structs.replace(new, **found), None, new.created_at)
        if self.prepare is not None:
            new = await self.prepare(ctx, new)

        async def commit(needs: object) -> Reply[ResponseBody]:
            create = self._followed(self.create, needs)
            return await ctx.commit(create, new, wrap=self.one, location=self.location)

        made: Reply[ResponseBody] = await self.around(commit, needs)
        return made

    async def answer_list(self, ctx: RequestContext) -> ResponseBody:
        """Return the page that a request selects."""
        account_id, region = account_of(ctx), ctx.settings.region
        query = ctx.query(self.bodies.query)
        ctx.authorize(self.of.crn(region, account_id, "*"))
        given = ((each, getattr(query, each.name)) for each in self.of.filters)
        asked = tuple(each.read(value) if value else "" for each, value in given)
        rows, count = self.rows.list, self.rows.count
        found, meta = await read_page(
            ctx, query, rows, count, account_id, region, asked, key=lambda each: each.id
        )
        now = ctx.clock()
        return self.answers.many([self.bodies.shown(self.as_of(each, now)) for each in found], meta)

    async def answer_get(self, ctx: RequestContext, found_id: str) -> ResponseBody:
        """Return the answer for one resource."""
        return self.at(ctx.clock())(await self.authorized(ctx, found_id))

    async def answer_update(
        self, ctx: RequestContext, found_id: str, data: RequestBody, needs: object = None
    ) -> Reply[ResponseBody]:
        """Change a resource as a request describes."""
        found = await self.authorized(ctx, found_id)
        changes = await self.resolved(ctx, self.given(data))
        now = ctx.clock()
        wrap, details = self.at(now), self.details_if_changed(now)

        async def commit(needs: object) -> Reply[ResponseBody]:
            update = self._followed(self.update, needs)
            return await ctx.commit(update, found, changes, now, wrap=wrap, details=details)

        changed: Reply[ResponseBody] = await self.around(commit, needs)
        return changed

    async def answer_delete(self, ctx: RequestContext, found_id: str, needs: object = None) -> None:
        """Delete a resource."""
        found = await self.authorized(ctx, found_id)

        async def commit(needs: object) -> None:
            await ctx.database.write(self._followed(self.remove, needs), found, ctx.clock())

        await self.around(commit, needs)
