"""SQL statements, written in SQLAlchemy Core and compiled once per database.

Executing a Core construct costs several hundred microseconds each time; its compiled text on the
driver's connection costs about thirty. So a `Statement` compiles at first use and the
connections run its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final
from weakref import WeakSet

import msgspec
from sqlalchemy import (
    BigInteger,
    ClauseElement,
    Dialect,
    String,
    Table,
    column,
    literal_column,
    or_,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql.base import PGCompiler
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FromClause, Select, bindparam, select
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import TypeEngine


class _PostgresqlCompiler(PGCompiler):
    """Compiles ``column IN (listed)`` as ``column = ANY(array)``.

    Like ``IN (1, 2)``, this form can use an index. A semijoin can use one too, if the planner has
    statistics of the table. But for a table that was never analyzed, the planner assumes that few
    rows share an owner, so it reads all rows of the owner and filters afterwards.
    """

    def visit_in_op_binary(self, binary: Any, _operator: Any, **kwargs: Any) -> str:  # noqa: ANN401
        texts = _listed_texts(binary.right)
        if texts is None:
            return self._generate_generic_binary(binary, " IN ", **kwargs)
        return f"{self.process(binary.left, **kwargs)} = ANY({_array(texts, self, **kwargs)})"


_SQLITE: Dialect = sqlite.dialect(paramstyle="named")
_POSTGRESQL: Dialect = postgresql.dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]
_POSTGRESQL.statement_compiler = _PostgresqlCompiler


class Statement:
    """A statement for both databases; parameters are bound by name."""

    def __init__(self, construct: ClauseElement, *, is_whole: bool = False) -> None:
        """Make a statement; with `is_whole`, one that can be a whole change.

        If a change begins with such a statement, PostgreSQL commits the statement at once, without
        BEGIN and COMMIT, and the change may run no other. A statement that reports no changed rows,
        or violates a constraint, must have changed nothing; after it, the change may go on.
        """
        self._construct = construct
        self.is_whole = is_whole
        _ALL.add(self)

    @cached_property
    def sqlite(self) -> str:
        """Return the text for SQLite (``:name`` parameters)."""
        return self._text(_SQLITE)

    @cached_property
    def postgresql(self) -> str:
        """Return the text for psycopg (``%(name)s`` parameters)."""
        return self._text(_POSTGRESQL)

    def _text(self, dialect: Dialect) -> str:
        compiled = self._construct.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        unnamed = [name for name, bind in compiled.binds.items() if not bind.required]
        if unnamed:
            raise TypeError(f"write constants as SQL text, they are no parameters: {unnamed}")
        return str(compiled)


_ALL: Final[WeakSet[Statement]] = WeakSet()


def compile_all(*, for_postgresql: bool) -> None:
    """Compile the statements of all loaded modules now; each takes 0.6 ms."""
    for statement in tuple(_ALL):
        _ = statement.postgresql if for_postgresql else statement.sqlite


class TableLock(ClauseElement):
    """Locks a table against writes by others until the end of the transaction.

    It first waits for other transactions that are writing to the table.
    """

    def __init__(self, table: Table) -> None:
        self.table: Final = table


@compiles(TableLock, "sqlite")
def _table_lock_sqlite(*_: object, **__: object) -> str:
    return "SELECT 1"  # SQLite has a single writer


@compiles(TableLock, "postgresql")
def _table_lock_postgresql(element: TableLock, *_: object, **__: object) -> str:
    return f"LOCK TABLE {element.table.name} IN SHARE ROW EXCLUSIVE MODE"


class _Texts(GenericFunction[str]):
    """The elements of a JSON array of strings, as rows."""

    type = String()
    name = "entrepot_texts"
    inherit_cache = True


@compiles(_Texts, "sqlite")
def _texts_sqlite(element: _Texts, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401
    return f"json_each({compiler.process(element.clauses, **kwargs)})"


@compiles(_Texts, "postgresql")
def _texts_postgresql(element: _Texts, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401
    # The planner estimates ten rows for an array and a hundred for the bare function, enough to
    # choose a sequential scan over the index on a table of some ten thousand rows.
    return f"(SELECT unnest({_array(element, compiler, **kwargs)}) AS value)"


def _array(element: _Texts, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401
    texts = compiler.process(element.clauses, **kwargs)
    return f"ARRAY(SELECT jsonb_array_elements_text(CAST({texts} AS jsonb)))"


def _listed_texts(element: ClauseElement) -> _Texts | None:
    """Return the JSON array function in a query made by `listed`, or None for any other query."""
    query = getattr(element, "element", element)
    sources = query.get_final_froms() if isinstance(query, Select) else []
    function = getattr(sources[0], "element", None) if len(sources) == 1 else None
    while function is not None and not isinstance(function, _Texts):
        function = getattr(function, "element", None)
    return function


def listed(parameter: str) -> Select[tuple[str]]:
    """Return a query for the strings in the list `parameter`, which is encoded by `text_list`.

    Use: ``column.in_(listed("digests"))``. The SQL text is the same for lists of any length, so the
    database prepares it only once.
    """
    table: FromClause = _Texts(bindparam(parameter, type_=String())).table_valued(
        column("value", String()), name="listed"
    )
    return select(table.c.value)


class _Unseen(GenericFunction[Any]):
    """A parameter whose value is hidden from PostgreSQL's planner."""

    name = "entrepot_unseen"
    inherit_cache = True


@compiles(_Unseen, "sqlite")
def _unseen_sqlite(element: _Unseen, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401
    return str(compiler.process(element.clauses, **kwargs))


@compiles(_Unseen, "postgresql")
def _unseen_postgresql(element: _Unseen, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401
    return f"(SELECT {compiler.process(element.clauses, **kwargs)})"


def unseen(parameter: str, kind: TypeEngine[Any]) -> Any:  # noqa: ANN401 - like a column
    """Return a parameter of type `kind` that PostgreSQL plans without its value.

    PostgreSQL plans the first five executions for their actual values, then once for any value. It
    keeps this generic plan unless the plan looks more expensive than the first five, planning
    included. For a page of a long list it looks so: without a known limit, the page is estimated at
    a tenth of the list. Then each execution would be planned, which takes longer than reading the
    page. With the limit, the range and the owner of the list unseen, all the plans look the same,
    and the generic one is kept.
    """
    return _Unseen(bindparam(parameter, type_=kind))


class _Unindexed(GenericFunction[Any]):
    """A column that SQLite compares with a value, but for which it uses no index."""

    name = "entrepot_unindexed"
    inherit_cache = True


@compiles(_Unindexed, "sqlite")
def _unindexed_sqlite(element: _Unindexed, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401
    return f"+{compiler.process(element.clauses, **kwargs)}"


@compiles(_Unindexed, "postgresql")
def _unindexed_postgresql(element: _Unindexed, compiler: Any, **kwargs: Any) -> str:  # noqa: ANN401
    return str(compiler.process(element.clauses, **kwargs))


def unindexed(column: Any) -> Any:  # noqa: ANN401 - like a column
    """Wrap `column` in a condition for which SQLite must not use an index.

    Use: ``unindexed(owner) == …, id.in_(listed("ids"))``. SQLite assumes that an owner has ten rows
    and that a list has 25 elements. So it would read all rows of the owner, and filter afterwards
    (https://www.sqlite.org/optoverview.html#uplus).
    """
    return _Unindexed(column)


def named(column: Any, name: str = "name") -> Any:  # noqa: ANN401 - a column
    """Return a condition: the column equals the parameter `name`, or that parameter is empty."""
    return or_(bindparam(name) == text("''"), column == bindparam(name))


def page(query: Select[Any]) -> Select[Any]:
    """Limit `query` to ``:limit`` rows."""
    return _limited(query, bindparam("limit"))


def paged(query: Select[Any]) -> Statement:
    """Return the statement for a query, limited to ``:limit`` rows."""
    return Statement(page(query))


def page_planned_once(query: Select[Any]) -> Select[Any]:
    """Limit `query` to an unseen ``:limit``; its conditions should be `unseen` too."""
    return _limited(query, unseen("limit", BigInteger()))


def _limited(query: Select[Any], limit: Any) -> Select[Any]:  # noqa: ANN401
    # Without an explicit offset, the SQLite dialect binds one as an unnamed parameter.
    return query.limit(limit).offset(literal_column("0"))


def text_list(values: Sequence[str]) -> str:
    """Encode strings as the JSON that `listed` expects."""
    return msgspec.json.encode(list(values)).decode()
