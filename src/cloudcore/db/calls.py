"""Statements that are called as functions of a transaction, with the values of their parameters.

After ``extend_session = Execute[str, int](…, "sid", "until")``, ``extend_session(tx, sid, until)``
runs it. So a query that needs no code around it is written once, with its types. A server compiles
all statements when it starts, and refuses names that are not those of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar, TypeVarTuple

from sqlalchemy import ClauseElement, Table

from cloudcore.db.base import Connection
from cloudcore.db.rows import insert_new
from cloudcore.db.statement import Statement

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
R = TypeVar("R", bound=tuple[Any, ...])


class _Called(Statement):
    def __init__(self, construct: ClauseElement, *names: str) -> None:
        """Make a statement with parameters of these names, in the order of a call."""
        super().__init__(construct)
        self._names = names

    def _check(self, parameters: Collection[str]) -> None:
        if set(parameters) != set(self._names):
            raise TypeError(f"it has the parameters {sorted(parameters)}, not {self._names}")

    def _given(self, values: tuple[Any, ...]) -> dict[str, object]:
        return dict(zip(self._names, values, strict=True))


class Add(_Called, Generic[R]):
    """The insertion of a row, a named tuple with the names of the columns."""

    def __init__(self, table: Table, row: type[R]) -> None:
        super().__init__(insert_new(table, row.__annotations__), *row.__annotations__)

    def __call__(self, tx: Connection, new: R, /) -> bool:
        """Insert a row; return False if one of its keys is taken."""
        return tx.execute(self, **self._given(new)) == 1


class Execute(_Called, Generic[*Ts]):
    """A change of rows."""

    def __call__(self, tx: Connection, /, *values: *Ts) -> int:
        """Run it; return how many rows it changed."""
        return tx.execute(self, **self._given(values))


class Exists(_Called, Generic[*Ts]):
    """A query for one row, of which only matters whether it is there."""

    def __call__(self, tx: Connection, /, *values: *Ts) -> bool:
        """Return True if there is a row."""
        return tx.row(self, **self._given(values)) is not None


class Find(_Called, Generic[T, *Ts]):
    """A query for one row; `make` gets its columns."""

    def __init__(self, make: Callable[..., T], construct: ClauseElement, *names: str) -> None:
        super().__init__(construct, *names)
        self._make = make

    def __call__(self, tx: Connection, /, *values: *Ts) -> T | None:
        """Return what is made of the row, or None if there is none."""
        row = tx.row(self, **self._given(values))
        return None if row is None else self._make(*row)


class FindAll(_Called, Generic[T, *Ts]):
    """A query for any number of rows; `make` gets the columns of each."""

    def __init__(self, make: Callable[..., T], construct: ClauseElement, *names: str) -> None:
        super().__init__(construct, *names)
        self._make = make

    def __call__(self, tx: Connection, /, *values: *Ts) -> list[T]:
        """Return what is made of each row."""
        return [self._make(*row) for row in tx.rows(self, **self._given(values))]


def whole(*row: Any) -> Any:  # noqa: ANN401 - columns of any type
    """Return a row as it is, as a tuple."""
    return row
