"""The standard queries of rows that belong to an owner: find, list, count, add, save, remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar, get_type_hints

from sqlalchemy import ClauseElement, ColumnElement, Select, Table, and_, bindparam, func, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, columns_of, count, find_all, find_one, insert_new
from cloudcore.db.statement import Statement, named, page
from cloudcore.identity.names import iam_crn, missing
from cloudcore.resource_references import Authorize, Kind, Scope, resolve
from cloudcore.web.bodies import ResourceRef


class Owned(Protocol):
    """A row of an owner, as a named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Owned)


Owner = str | tuple[str, str]
"""The id of an owner, or (account id, id of the owner)."""


def _owner_values(owner: Owner) -> dict[str, str]:
    return {"owner": owner} if isinstance(owner, str) else {"account": owner[0], "owner": owner[1]}


def _reader(make: Callable[..., T]) -> Callable[..., T]:
    """Wrap `make`, so that SQLite's numbers become booleans for `bool` fields of a named tuple."""
    kinds = get_type_hints(make) if isinstance(make, type) else {}
    flags = [number for number, kind in enumerate(kinds.values()) if kind is bool]
    if not flags:
        return make

    def read(*columns: Any) -> T:  # noqa: ANN401 - of a database
        values = [*columns]
        for each in flags:
            values[each] = bool(values[each])
        return make(*values)

    return read


def _statements(**made: ClauseElement) -> dict[str, Statement]:
    return {name: Statement(each) for name, each in made.items()}


class Listed(Generic[T]):
    """Queries of an owner's rows; an owner is an account, an organization, a role or a person."""

    def __init__(
        self,
        query: Select[Any],
        read: Callable[..., T],
        words: str,
        *,
        of: ColumnElement[bool],
        key: ColumnElement[Any],
        label: ColumnElement[Any],
        order: ColumnElement[Any],
        counted: Select[Any] | None = None,
    ) -> None:
        """Make the statements from `query`.

        - `read`: a named tuple or a function that makes a row from the selected columns.
        - `words`: what errors call a row.
        - `of`: the condition that compares the owner's column with `:owner`.
        - `key` (an id) and `label` (a name or an address): columns that are unique within an owner.
        - `order`: the column that lists are sorted by.
        - `counted`: a cheaper query of the same rows, for counting.
        """
        self._missing: Final = partial(missing, words)
        self.sort_key: Final[Callable[[T], str]] = attrgetter(str(order.key))
        """Returns the value that a row is sorted by."""
        self.row: Final = _reader(read)
        """Makes a row from the columns of `query`."""
        self.label: Final = str(label.key)
        """Name of the label column, and of the field of rows that has it."""
        listed = of, named(label, "label")
        if counted is None:
            counted = query.with_only_columns(func.count(), maintain_column_froms=True)
        self.statements = _statements(
            find=query.where(of, key == bindparam("key")),
            labelled=query.where(of, label == bindparam("label")),
            list=page(query.where(*listed, order > bindparam("after")).order_by(order)),
            count=counted.where(*listed),
        )

    def find(self, tx: Connection, owner: Owner, key: str) -> T | None:
        """Return the owner's row with this key, or None."""
        return find_one(tx, self.row, self.statements["find"], **_owner_values(owner), key=key)

    def get(self, tx: Connection, owner: Owner, key: str) -> T:
        """Return the owner's row with this key, or raise `NotFound`."""
        found = self.find(tx, owner, key)
        if found is None:
            raise self._missing()
        return found

    def find_named(self, tx: Connection, owner: Owner, label: str) -> T | None:
        """Return the owner's row with this label, or None."""
        of = {**_owner_values(owner), "label": label}
        return find_one(tx, self.row, self.statements["labelled"], **of)

    def list(self, tx: Connection, owner: Owner, label: str, after: str, limit: int) -> Sequence[T]:
        """Return up to `limit` rows of an owner, sorted, beginning after the sort key `after`.

        A non-empty `label` selects only the row with this label.
        """
        of = {**_owner_values(owner), "label": label}
        return find_all(tx, self.row, self.statements["list"], **of, after=after, limit=limit)

    def count(self, tx: Connection, owner: Owner, label: str = "") -> int:
        """Count the rows that `list` lists."""
        return count(tx, self.statements["count"], **_owner_values(owner), label=label)


class OwnedRows(Listed[T]):
    """The rows of a table in which each row has one owner."""

    def __init__(
        self,
        table: Table,
        row: type[T],
        words: str,
        changeable: Sequence[str] = (),
        *,
        owner: str = "account_id",
        has_account: bool = False,
        key: str = "id",
        label: str = "name",
        sorted_by: str = "",
        computed: Sequence[str] = (),
        looked_up: Mapping[str, ColumnElement[Any]] | None = None,
        query: Select[Any] | None = None,
        read: Callable[..., T] | None = None,
    ) -> None:
        """Make the statements; columns are passed by name.

        - `changeable`: the columns that `save` writes.
        - `owner`, `key`, `label`: see `Listed`.
        - `has_account`: rows also have their owner's account, and are selected by both.
        - `sorted_by`: the column that lists are sorted by; by default the label.
        - `computed`: fields that are not stored; `query` selects them.
        - `looked_up`: maps columns to the subqueries that fill them at an INSERT.
        - `query`, `read`: select the columns, and make a row from them; see `Listed`.
        """
        fields = [*row.__annotations__]
        self._stored = [name for name in fields if name not in computed]
        self._owner, self._has_account = owner, has_account
        self._key = key
        self._changeable = changeable
        c, of = table.c, table.c[owner] == bindparam("owner")
        if has_account:
            of = and_(table.c.account_id == bindparam("account"), of)
        super().__init__(
            columns_of(table, fields) if query is None else query,
            read or row,
            words,
            of=of,
            key=c[key],
            label=c[label],
            order=c[sorted_by or label],
            counted=select(func.count()).select_from(table),
        )
        is_it = of, c[key] == bindparam("key")
        insertion = insert_new(table, self._stored)
        if looked_up is not None:
            insertion = insertion.values(**looked_up)
        self.statements |= _statements(add=insertion, remove=table.delete().where(*is_it))
        if changeable:
            save = table.update().where(*is_it).values(bound(changeable))
            self.statements |= _statements(save=save)
        self._kind: Kind[Any] = Kind(
            "iam",
            words.replace(" ", "-"),
            lambda tx, scope, found_id: self.find(tx, scope.account_id, found_id),
            lambda tx, scope, name: self.find_named(tx, scope.account_id, name),
            self._missing,
        )

    def add(self, tx: Connection, new: T) -> bool:
        """Insert a row; return False if a unique value, such as its label, is taken."""
        values = new._asdict()
        stored = {name: values[name] for name in self._stored}
        return tx.execute(self.statements["add"], **stored) == 1

    def save(self, tx: Connection, changed: T) -> None:
        """Update the changeable columns of a row."""
        values = changed._asdict()
        new = {name: values[name] for name in self._changeable}
        owner = values[self._owner]
        of = _owner_values((values["account_id"], owner) if self._has_account else owner)
        tx.execute(self.statements["save"], **of, key=values[self._key], **new)

    def remove(self, tx: Connection, owner: Owner, key: str) -> None:
        """Delete a row, and through foreign keys its dependents; raise `NotFound` if missing."""
        if not tx.execute(self.statements["remove"], **_owner_values(owner), key=key):
            raise self._missing()

    def resolve(
        self, tx: Connection, account_id: str, field: str, value: str, authorize: Authorize
    ) -> T:
        """Return the row that a request's `field` names by id, name or CRN (`value`).

        `authorize` raises unless the caller may use the row; see `resource_references` for errors.
        """
        found: T = resolve(tx, Scope(account_id, ""), self._kind, field, value, authorize)
        return found

    def crn(self, owner_id: str, name: str) -> str:
        """Return the CRN of the row with this name; the name may be a pattern."""
        return iam_crn(owner_id, self._kind.type, name)

    def crn_of(self, found: T) -> str:
        """Return the CRN of a row."""
        return self.crn(getattr(found, self._owner), getattr(found, self.label))

    def reference(self, found: T) -> ResourceRef:
        """Return the reference to a row, for a response body."""
        found_id, name = getattr(found, self._key), getattr(found, self.label)
        return ResourceRef(id=found_id, crn=self.crn_of(found), name=name)
