"""Queries that all kinds of rows have that belong to an owner, in the order of their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Select, Table, bindparam, func, select

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, columns, count, insert_new
from cloudcore.db.statement import Statement, named, page
from cloudcore.errors import NotFound
from cloudcore.identity.names import iam_crn, missing
from cloudcore.resource_references import Authorize, Kind, Scope, resolve


class Owned(Protocol):
    """A row, as a named tuple."""

    @property
    def id(self) -> str:
        """Return its id."""
        ...

    def _asdict(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Owned)


class OwnedRows(Generic[T]):
    """The rows of a table, each of one account, organization or role.

    An owner has one of each label: a name, an address, or the id.
    """

    def __init__(
        self,
        table: Table,
        row: type[T],
        words: str,
        changeable: Sequence[str],
        *,
        owner: str = "account_id",
        label: str = "name",
        computed: Sequence[str] = (),
        query: Select[Any] | None = None,
        read: Callable[..., T] | None = None,
    ) -> None:
        """Make the statements.

        `words` are what errors call one, and `changeable` the columns that `save` writes. `query`
        selects what is `computed`, besides columns, and `read` makes a row of what is selected.
        """
        fields = [*row.__annotations__]
        self._stored = [name for name in fields if name not in computed]
        self._owner, self._label = owner, label
        self._changeable, self._words = changeable, words
        self._read: Callable[..., T] = read or row
        every = columns(table, fields) if query is None else query
        self.statements = self._statements(table, every)
        self._kind: Kind[Any] = Kind(
            "iam", words.replace(" ", "-"), self._find_in, self._find_named_in, self._missing
        )

    def _statements(self, table: Table, every: Select[Any]) -> dict[str, Statement]:
        c, of = table.c, table.c[self._owner] == bindparam(self._owner)
        label, is_it = c[self._label], (of, c.id == bindparam("of_id"))
        listed = of, named(label, self._label)
        made = {
            "add": insert_new(table, self._stored),
            "find": every.where(of, c.id == bindparam("id")),
            "labelled": every.where(of, label == bindparam(self._label)),
            "list": page(every.where(*listed, label > bindparam("after")).order_by(label)),
            "count": select(func.count()).select_from(table).where(*listed),
            "remove": table.delete().where(*is_it),
        }
        if self._changeable:
            made["save"] = table.update().where(*is_it).values(bound(self._changeable))
        return {name: Statement(each) for name, each in made.items()}

    def add(self, tx: Connection, new: T) -> bool:
        """Insert one; return False if its name is taken."""
        values = new._asdict()
        stored = {name: values[name] for name in self._stored}
        return tx.execute(self.statements["add"], **stored) == 1

    def find(self, tx: Connection, owner_id: str, found_id: str) -> T | None:
        """Return the one of an id, or None."""
        row = tx.row(self.statements["find"], **{self._owner: owner_id}, id=found_id)
        return self._read(*row) if row else None

    def get(self, tx: Connection, owner_id: str, found_id: str) -> T:
        """Return the one of an id, or raise `NotFound`."""
        found = self.find(tx, owner_id, found_id)
        if found is None:
            raise self._missing()
        return found

    def find_named(self, tx: Connection, owner_id: str, label: str) -> T | None:
        """Return the one of a label, or None."""
        of = {self._owner: owner_id, self._label: label}
        row = tx.row(self.statements["labelled"], **of)
        return self._read(*row) if row else None

    def resolve(
        self, tx: Connection, owner_id: str, field: str, value: str, authorize: Authorize
    ) -> T:
        """Return the one that `value` in a request's `field` means; see `resource_references`."""
        found: T = resolve(tx, Scope(owner_id, ""), self._kind, field, value, authorize)
        return found

    def crn(self, owner_id: str, name: str) -> str:
        """Return the CRN of one; `name` may be a pattern."""
        return iam_crn(owner_id, self._kind.type, name)

    def crn_of(self, found: T) -> str:
        """Return the CRN of a row."""
        return self.crn(getattr(found, self._owner), self.label_of(found))

    def label_of(self, found: T) -> str:
        """Return the label of a row, by which pages are sorted."""
        label: str = getattr(found, self._label)
        return label

    def list(
        self, tx: Connection, owner_id: str, label: str, after: str, limit: int
    ) -> Sequence[T]:
        """Return a page of an owner's; if `label` is not empty, only the one that has it."""
        of = {self._owner: owner_id, self._label: label, "after": after, "limit": limit}
        return self.read(tx.rows(self.statements["list"], **of))

    def count(self, tx: Connection, owner_id: str, label: str) -> int:
        """Count what `list` lists."""
        of = {self._owner: owner_id, self._label: label}
        return count(tx, self.statements["count"], **of)

    def save(self, tx: Connection, changed: T) -> None:
        """Update the changeable columns of one."""
        values = changed._asdict()
        new = {name: values[name] for name in (self._owner, *self._changeable)}
        tx.execute(self.statements["save"], of_id=changed.id, **new)

    def remove(self, tx: Connection, owner_id: str, found_id: str) -> bool:
        """Delete one, with what goes with it by foreign keys; return False if there is none."""
        of = {self._owner: owner_id, "of_id": found_id}
        return tx.execute(self.statements["remove"], **of) == 1

    def read(self, rows: Sequence[Row]) -> Sequence[T]:
        """Return what a query of all columns has found."""
        return [self._read(*row) for row in rows]

    def _missing(self) -> NotFound:
        return missing(self._words)

    def _find_in(self, tx: Connection, scope: Scope, found_id: str) -> T | None:
        return self.find(tx, scope.account_id, found_id)

    def _find_named_in(self, tx: Connection, scope: Scope, name: str) -> T | None:
        return self.find_named(tx, scope.account_id, name)
