"""The table of a resource, and its queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, count, first, given
from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata
from cloudcore.db.statement import Statement, page
from cloudcore.errors import Conflict, NotFound
from cloudcore.quotas.limits import Counted, QuotaUse
from cloudcore.resource_names import with_article
from cloudcore.resource_references import Authorize, Kind, Scope, resolve
from cloudcore.resources.resource import (
    BASE,
    DELETING,
    Described,
    Filter,
    Record,
    Reference,
    Resource,
    Worked,
)

R = TypeVar("R", bound=Record)
Condition = Callable[[sa.Table], sa.ColumnElement[bool]]
"""Returns the condition of a filter; gets the table."""
IS_LIVE: Final = sa.text("deleted_at IS NULL")
IS_DELETED: Final = sa.text("deleted_at IS NOT NULL")


class Rows(Generic[R]):
    """The table of a resource, and its queries."""

    def __init__(
        self,
        of: Resource[R],
        *constraints: SchemaItem,
        unique: SchemaItem | None = None,
        types: Mapping[str, TypeEngine[Any]] | None = None,
        references: Mapping[str, Rows[Any] | None] | None = None,
        on_delete: Mapping[str, Any] | None = None,
        missing: Callable[[], NotFound] | None = None,
        conditions: Mapping[str, Condition] | None = None,
        schema: sa.MetaData = metadata,
    ) -> None:
        """Make the table and the statements.

        `constraints` and indexes are added to those that follow from the description. `unique`
        makes the key unique, in place of the usual index. `types` maps columns to types other than
        usual. `references` maps each reference field to the rows that it refers to, or None for
        these rows. `on_delete` has the values for columns of a kept deleted row; its statement has
        the id as ``of_id``, and optional references become null. `missing` makes the error for a
        missing resource. `conditions` are for filters without a column; each has a parameter with
        the filter's name. `schema` differs from the product's only in tests.
        """
        self.of: Final = of
        self._conditions: Final = conditions or {}
        self.missing: Final = missing or (lambda: NotFound(f"there is no such {of.noun}"))
        fields = of.fields.values()
        self._stored: Final = (*BASE[:3], *(each.column for each in fields), *BASE[3:])
        self._names: Final = (*BASE[:3], *of.fields, *BASE[3:])
        self._changeable: Final = (
            *(each.column for each in fields if each.use.use != "fixed"),
            "updated_at",
        )
        self._booleans: Final = [each.column for each in fields if each.plain is bool]
        self._documents: Final = {
            each.column: msgspec.json.Decoder(each.plain) for each in fields if each.is_document
        }
        self._references: Final = {each.name: each.column for each in fields if each.is_reference}
        self.table: Final = _table(schema, of, constraints, unique, types or {}, references or {})
        targets = {name: (references or {})[name] for name in self._references}
        self.columns: Final = self._columns({name: rows or self for name, rows in targets.items()})
        """A query of all columns, for statements of the family; see `read_one`."""
        freed = {
            each.column: sa.text("NULL")
            for each in fields
            if each.is_reference and each.is_optional
        }
        self.statements: Final = self._statements({**freed, **(on_delete or {})})
        number = sa.select(sa.func.count()).select_from(self.table).where(*self._region())
        self.counted: Final = Counted(of.room, number)
        """Counts an account's records in a ``region``, and checks the quota."""
        self.kind: Final[Kind[Any]] = Kind(
            of.service,
            of.type,
            self._find_in,
            self._find_named_in,
            self.missing,
            of.check_key,
            attrgetter(of.key),
        )
        """Finds records for the references in requests; see
        `cloudcore.resource_references.resolve`."""

    def _statements(self, on_delete: Mapping[str, Any]) -> dict[str, Statement]:
        of, c, rows = self.of, self.table.c, self.columns
        account = given(c.account_id)
        live = (c.deleted_at.is_(None),) if of.keeps_deleted else ()
        one = rows.where(given(c.id), account, *live)
        region = self._region()
        wanted = [_wanted(self.table, each, self._conditions.get(each.name)) for each in of.filters]
        listed = rows.where(*region, *wanted, c.id > sa.bindparam("after")).order_by(c.id)
        is_it = (c.id == sa.bindparam("of_id"), account)
        stays = (c.status != sa.text(f"'{DELETING}'"),) if issubclass(of.record, Worked) else ()
        made = {
            "add": insert(self.table).values(bound(self._stored)).on_conflict_do_nothing(),
            "find": one,
            "lock": one.with_for_update(of=self.table),
            "lock_values": one.with_for_update(of=self.table, key_share=True),
            "hold": one.where(*stays).with_for_update(of=self.table, read=True, key_share=True),
            "named": rows.where(*region, c[of.key] == sa.bindparam("key")),
            "list": page(listed),
            "count": sa.select(sa.func.count()).select_from(self.table).where(*region, *wanted),
            "save": self.table.update().where(*is_it).values(bound(self._changeable)),
            "remove": self.table.update()
            .where(*is_it)
            .values(deleted_at=sa.bindparam("now"), **on_delete)
            if of.keeps_deleted
            else self.table.delete().where(*is_it),
        }
        for name, column_of in self._references.items():
            made[f"referring_{name}"] = first(
                sa.select(c[of.label])
                .where(c[column_of] == sa.bindparam("to_id"), account, *live)
                .order_by(c[of.label])
            )
        return {name: Statement(each) for name, each in made.items()}

    def _region(self) -> Sequence[sa.ColumnElement[bool]]:
        """Return the conditions for the account and, unless the kind spans regions, the region."""
        c = self.table.c
        live = (c.deleted_at.is_(None),) if self.of.keeps_deleted else ()
        place = (c.account_id,) if self.of.is_queried_in_all_regions else (c.account_id, c.region)
        return (given(*place), *live)

    def _columns(self, targets: Mapping[str, Rows[Any]]) -> sa.Select[Any]:
        """Return a query for the stored columns and the names of the referenced resources."""
        source: Any = self.table
        names = []
        for name, rows in targets.items():
            other = rows.table.alias(f"{name}_of")
            is_it = (other.c.id == self.table.c[self._references[name]]) & (
                other.c.account_id == self.table.c.account_id
            )
            source = source.outerjoin(other, is_it)
            names.append(other.c[rows.of.key])
        return sa.select(*(self.table.c[each] for each in self._stored), *names).select_from(source)

    def find(self, tx: Connection, account_id: str, found_id: str) -> R | None:
        """Return a record of an account by its id, or None."""
        return self.read_one(tx, self.statements["find"], account_id=account_id, id=found_id)

    def get(self, tx: Connection, account_id: str, region: str, found_id: str) -> R:
        """Return a record of an account and region, or raise `NotFound`.

        The region does not matter for a kind that spans regions.
        """
        found = self.find(tx, account_id, found_id)
        if found is None or not (self.of.is_queried_in_all_regions or found.region == region):
            raise self.missing()
        return found

    def find_named(self, tx: Connection, account_id: str, region: str, key: str) -> R | None:
        """Return the record with this key, or None."""
        named = self.statements["named"]
        return self.read_one(tx, named, account_id=account_id, region=region, key=key)

    def resolve(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        field: str,
        value: str,
        authorize: Authorize | None,
    ) -> R:
        """Return the record to which `value` in a request's `field` refers: by id, name or CRN.

        `authorize` raises `AccessDenied` unless the caller may use the record; it is None if the
        platform itself is the caller. See `cloudcore.resource_references.resolve` for all errors.
        """
        found: R = resolve(tx, Scope(account_id, region), self.kind, field, value, authorize)
        return found

    def lock(self, tx: Connection, account_id: str, found_id: str) -> R:
        """Return a record; until `tx` ends, block changes of it and calls of `hold` for it.

        Raise `NotFound` if the record was deleted.
        """
        found = self.try_lock(tx, account_id, found_id)
        if found is None:
            raise self.missing()
        return found

    def try_lock(self, tx: Connection, account_id: str, found_id: str) -> R | None:
        """Lock and return a record like `lock`, but return None if it was deleted."""
        return self.read_one(tx, self.statements["lock"], account_id=account_id, id=found_id)

    def lock_values(self, tx: Connection, account_id: str, found_id: str) -> R | None:
        """Return a record, or None; until `tx` ends, block changes of it, but not `hold`."""
        return self.read_one(tx, self.statements["lock_values"], account_id=account_id, id=found_id)

    def change(
        self, tx: Connection, account_id: str, found_id: str, changed: Callable[[R], R], now: int
    ) -> tuple[R, R] | None:
        """Replace a record by `changed(record)`, which may use `tx`; return (old, new).

        Return None if the record was deleted. If `changed` returns an equal record, store nothing.
        """
        before = self.try_lock(tx, account_id, found_id)
        if before is None:
            return None
        after = changed(before)
        if after != before:
            after = self.save(tx, msgspec.structs.replace(after, updated_at=now))
        return before, after

    def hold(self, tx: Connection, account_id: str, found_id: str) -> R | None:
        """Return a record, and prevent its deletion until `tx` ends.

        Return None if the record is deleted or being deleted. Several transactions may hold a
        record at the same time.
        """
        return self.read_one(tx, self.statements["hold"], account_id=account_id, id=found_id)

    def list(
        self,
        tx: Connection,
        account_id: str,
        region: str,
        asked: Sequence[str],
        after: str,
        limit: int,
    ) -> Sequence[R]:
        """Return a page of records after the id `after`, oldest first.

        `asked` are the values of the filters, in order; an empty value selects all records.
        """
        where = {"account_id": account_id, "region": region, **self._asked(asked)}
        return self.read_all(tx, self.statements["list"], after=after, limit=limit, **where)

    def count(self, tx: Connection, account_id: str, region: str, asked: Sequence[str]) -> int:
        """Count the records that `list` lists."""
        filters = self._asked(asked)
        return count(tx, self.statements["count"], account_id=account_id, region=region, **filters)

    def check_room(self, tx: Connection, account_id: str, region: str) -> QuotaUse:
        """Raise `QuotaExceeded` if an account has reached its quota.

        Otherwise return its use, to be passed to `counted.emit_level` after the insertion.
        """
        words = f"an account has at most {{limit}} {self.of.nouns}; delete some that nothing uses"
        return self.counted.check(tx, account_id, words, region=region)

    def add(self, tx: Connection, new: R) -> R:
        """Insert a record; raise `Conflict` if its key is taken."""
        if tx.execute(self.statements["add"], **self._values(new, self._stored)) != 1:
            label = self.of.label
            words = f"there is {with_article(self.of.noun)} of this {label}"
            raise Conflict(words, **{label: getattr(new, label)})
        return new

    def save(self, tx: Connection, changed: R) -> R:
        """Update the mutable columns of a record."""
        values = self._values(changed, self._changeable)
        tx.execute(
            self.statements["save"], of_id=changed.id, account_id=changed.account_id, **values
        )
        return changed

    def remove(self, tx: Connection, found: R, now: int) -> None:
        """Delete a record; if the kind keeps deleted records, only set ``deleted_at``."""
        when = {"now": now} if self.of.keeps_deleted else {}
        remove = self.statements["remove"]
        tx.execute(remove, of_id=found.id, account_id=found.account_id, **when)

    def name_of_one_referring(
        self, tx: Connection, field: str, account_id: str, to_id: str
    ) -> str | None:
        """Return the name of one record whose `field` refers to the resource `to_id`, or None."""
        row = tx.row(self.statements[f"referring_{field}"], account_id=account_id, to_id=to_id)
        return row[0] if row else None

    def read_one(self, tx: Connection, statement: Statement, /, **parameters: object) -> R | None:
        """Return the record that a statement finds, or None; the statement selects `columns`."""
        row = tx.row(statement, **parameters)
        return None if row is None else self.record_of(row)

    def read_all(
        self, tx: Connection, statement: Statement, /, **parameters: object
    ) -> Sequence[R]:
        """Return the records that a statement finds; the statement selects `columns`."""
        return [self.record_of(row) for row in tx.rows(statement, **parameters)]

    @property
    def width(self) -> int:
        """Return the number of columns that `columns` selects."""
        return len(self._stored) + len(self._references)

    def record_of(self, row: Row) -> R:
        """Make a record from a row with all selected columns."""
        size = len(self._stored)
        values = dict(zip(self._names, row[:size], strict=True))
        for name in self._booleans:  # SQLite has numbers
            values[name] = None if values[name] is None else bool(values[name])
        for name, decoder in self._documents.items():
            if values[name] is not None:
                values[name] = decoder.decode(values[name])
        for name, other in zip(self._references, row[size:], strict=True):
            if values[name] is not None:
                values[name] = Reference(values[name], other or "")
        return self.of.record(**values)

    def _values(self, record: R, columns: Sequence[str]) -> dict[str, Any]:
        values = {each.column: getattr(record, each.name) for each in self.of.fields.values()}
        for name in self._documents:
            if values[name] is not None:
                values[name] = msgspec.json.encode(values[name], order="deterministic").decode()
        for name in self._references.values():
            values[name] = values[name] and values[name].id
        return {name: values[name] if name in values else getattr(record, name) for name in columns}

    def _asked(self, asked: Sequence[str]) -> dict[str, object]:
        return dict(zip((each.name for each in self.of.filters), asked, strict=True))

    def _find_in(self, tx: Connection, scope: Scope, found_id: str) -> R | None:
        found = self.find(tx, scope.account_id, found_id)
        return found if found is not None and found.region == scope.region else None

    def _find_named_in(self, tx: Connection, scope: Scope, name: str) -> R | None:
        return self.find_named(tx, scope.account_id, scope.region, name)


def _wanted(table: sa.Table, by: Filter, condition: Condition | None) -> sa.ColumnElement[bool]:
    """Return a filter's condition; an empty parameter selects everything."""
    every = sa.bindparam(by.name) == sa.text("''")
    if condition is not None:
        return every | condition(table)
    column = table.c[by.column or by.name]
    if by.hides:
        every &= column != sa.text(f"'{by.hides}'")
    return every | (column == sa.bindparam(by.name))


def _table(
    schema: sa.MetaData,
    of: Resource[Any],
    constraints: Sequence[SchemaItem],
    unique: SchemaItem | None,
    types: Mapping[str, TypeEngine[Any]],
    references: Mapping[str, Rows[Any] | None],
) -> sa.Table:
    name = of.table or of.many
    where: dict[str, Any] = (
        {"sqlite_where": IS_LIVE, "postgresql_where": IS_LIVE} if of.keeps_deleted else {}
    )
    return sa.Table(
        name,
        schema,
        sa.Column("id", Id, primary_key=True),
        sa.Column("account_id", Id, sa.ForeignKey("accounts.id"), nullable=False),
        sa.Column("region", ByteOrdered, nullable=False),
        *(
            sa.Column(
                each.column,
                types[each.column] if each.column in types else _type(of, each),
                nullable=each.is_optional,
            )
            for each in of.fields.values()
        ),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("updated_at", Moment, nullable=False),
        *([sa.Column("deleted_at", Moment)] if of.keeps_deleted else []),
        *(
            _target(name, each, references.get(each.name))
            for each in of.fields.values()
            if each.is_reference
        ),
        *constraints,
        sa.UniqueConstraint("id", "account_id"),
        sa.Index(f"ix_{name}_account_id_id", "account_id", "id"),
        sa.Index(f"uq_{name}_{of.key}", "account_id", "region", of.key, unique=True, **where)
        if unique is None
        else unique,
    )


def _target(name: str, of: Described, rows: Rows[Any] | None) -> sa.ForeignKeyConstraint:
    target = rows.table.name if rows is not None else name
    return sa.ForeignKeyConstraint(
        [of.column, "account_id"],
        [f"{target}.id", f"{target}.account_id"],
        name=f"fk_{name}_{of.name}",
    )


def _type(of: Resource[Any], described: Described) -> TypeEngine[Any]:
    if described.is_reference:
        return Id
    if described.is_moment:
        return Moment
    if described.plain is int:
        return sa.Integer() if described.is_bounded else sa.BigInteger()
    if described.plain is bool:
        return sa.Boolean()
    if described.plain is bytes:
        return sa.LargeBinary()
    is_sorted = described.name in (of.key, *(each.column or each.name for each in of.filters))
    return ByteOrdered if is_sorted else sa.Text()
