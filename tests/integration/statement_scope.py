"""What ties the tables of a statement to one tenant: read off the statement, not believed.

An occurrence of a table is *scoped* when an equality, in force for every row, binds its account or
its repository to a parameter, or ties its key to another occurrence that is scoped. It is *keyed*
when the parameter is some other id: then the id itself must have been found under a scope, which
is for requests to show and not for the text.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from sqlalchemy import BindParameter, Column, Delete, Insert, Table, Update
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BinaryExpression, BooleanClauseList, Grouping
from sqlalchemy.sql.selectable import Join, ScalarSelect, Select

import cloudcore
import registry
from cloudcore.db.schema import metadata
from cloudcore.db.statement import Statement, _Unindexed, _Unseen
from cloudcore.identity.rows.owned import Listed
from cloudcore.nodes.rows import OnNode
from cloudcore.objects.stored_rows import StoredRows
from cloudcore.quotas.limits import Counted
from cloudcore.resources.rows import Rows

ROOTS: Final = (cloudcore, registry)
SCOPE_COLUMNS: Final = ("account_id", "owner_id", "repository_id", "scope_id")

MAKERS: Final = (
    "cloudcore.db.statement",
    "cloudcore.resources.rows",
    "cloudcore.identity.rows.owned",
    "cloudcore.quotas.limits",
    "cloudcore.objects.stored_rows",
)
"""What a module imports that makes statements, itself or by a description."""
Place = tuple[int, str]
"""An occurrence of a table, and a column of it."""


def modules() -> Iterator[tuple[ModuleType, str]]:
    """Import and yield every module that makes statements, with its source."""
    for root in ROOTS:
        folder = Path(next(iter(root.__path__)))
        for path in sorted(folder.rglob("*.py")):
            source = path.read_text()
            if any(f"from {each} import" in source for each in MAKERS):
                parts = path.relative_to(folder.parent).with_suffix("").parts
                yield importlib.import_module(".".join(parts)), source


@cache
def all_statements() -> dict[str, Statement]:
    """Return every statement of the product by its dotted name."""
    named: dict[int, tuple[str, Statement]] = {}
    for module, source in modules():
        for name, value in vars(module).items():
            made = f"{name}: Final = {type(value).__name__}"
            if isinstance(value, StoredRows) and made not in source:
                continue  # it is imported
            for key, each in _within(value):
                suffix = f"[{key}]" if each is not value else ""
                named.setdefault(id(each), (f"{module.__name__}.{name}{suffix}", each))
    return dict(named.values())


def _within(value: object) -> list[tuple[object, Statement]]:
    if isinstance(value, Rows):
        value = {**value.statements, "counted": value.counted.statement}
    elif isinstance(value, Listed | StoredRows):
        value = value.statements
    elif isinstance(value, OnNode):
        value = {"on_node": value.statement}
    elif isinstance(value, Counted):
        value = {"counted": value.statement}
    if isinstance(value, dict):
        values = list(value.items())
    else:
        values = list(enumerate(value if isinstance(value, list | tuple) else [value]))
    return [(key, each) for key, each in values if isinstance(each, Statement)]


def makers() -> dict[str, str]:
    """Return the functions that make a statement, and what they say they return."""
    found = {}
    for module, source in modules():
        for function in ast.walk(ast.parse(source)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                isinstance(call, ast.Call) and ast.unparse(call.func) == "Statement"
                for call in ast.walk(function)
            ):
                returns = "" if function.returns is None else ast.unparse(function.returns)
                found[f"{module.__name__}.{function.name}"] = returns
    return found


def is_of_a_tenant(table: Table) -> bool:
    """Say whether the rows of a table belong to an account."""
    return table.name == "accounts" or any(name in table.c for name in SCOPE_COLUMNS)


class Scopes:
    """The tables of a statement, and what each is tied by."""

    def __init__(self, statement: Statement) -> None:
        self._tables: dict[int, Table] = {}
        self._bound: dict[Place, set[str]] = {}
        self._equal: list[tuple[Place, Place]] = []
        for node in _nodes(statement._construct):
            self._note(node)
        self._scoped = self._spread({t for t in self._tables if self._is_pinned(t, scope=True)})
        self._keyed = self._spread({t for t in self._tables if self._is_pinned(t, scope=False)})

    def tables(self) -> list[Table]:
        """Return the tables that occur, as often as they do."""
        return list(self._tables.values())

    def unscoped(self) -> set[str]:
        """Return the tenant tables that are not tied to an account."""
        return self._names(self._tables.keys() - self._scoped)

    def loose(self) -> set[str]:
        """Return the tenant tables that nothing ties to a single thing, of whatever account."""
        return self._names(self._tables.keys() - self._keyed - self._scoped)

    def _names(self, occurrences: Iterable[int]) -> set[str]:
        tables = [self._tables[each] for each in occurrences]
        return {table.name for table in tables if is_of_a_tenant(table)}

    def _note(self, node: Any) -> None:  # noqa: ANN401 - any element of SQLAlchemy
        if isinstance(node, Column) and node.table is not None:
            self._occurrence(node)
        if isinstance(node, Select | Update | Delete):
            for clause in node._where_criteria:
                self._require(clause)
        elif isinstance(node, Join):
            self._require(node.onclause)
        elif isinstance(node, Insert):
            self._insert(node)
        if isinstance(node, Update | Delete):
            self._tables[id(node.table)] = _table(node.table)

    def _occurrence(self, column: Any) -> Place:  # noqa: ANN401
        table = _table(column.table)
        is_excluded = getattr(column.table, "name", "") == "excluded"  # of ON CONFLICT
        if isinstance(table, Table) and not is_excluded:
            self._tables[id(column.table)] = table
        return id(column.table), column.name

    def _insert(self, node: Insert) -> None:
        table = node.table
        assert isinstance(table, Table)
        self._tables[id(table)] = table
        for column in table.c:
            self._bound.setdefault((id(table), column.name), set()).add(column.name)

    def _require(self, clause: Any) -> None:  # noqa: ANN401
        """Note what holds for every row: the parts of a conjunction, and no part of a choice."""
        if isinstance(clause, Grouping):
            self._require(clause.element)
        elif isinstance(clause, BooleanClauseList) and clause.operator is operators.and_:
            for part in clause.clauses:
                self._require(part)
        elif isinstance(clause, BinaryExpression) and clause.operator in (
            operators.eq,
            operators.in_op,
        ):
            self._tie(clause.left, clause.right)
            self._tie(clause.right, clause.left)

    def _tie(self, left: Any, right: Any) -> None:  # noqa: ANN401
        if isinstance(left, _Unindexed):
            (left,) = left.clauses
        if not isinstance(left, Column) or left.table is None:
            return
        place = self._occurrence(left)
        if isinstance(right, _Unseen | _Unindexed):
            (right,) = right.clauses
        if isinstance(right, BindParameter):
            self._bound.setdefault(place, set()).add(right.key)
        elif isinstance(right, Column) and right.table is not None:
            self._equal.append((place, self._occurrence(right)))
        else:
            self._tie_to_query(place, right)

    def _tie_to_query(self, place: Place, right: Any) -> None:  # noqa: ANN401
        selects = [each for each in visitors.iterate(right) if isinstance(each, Select)]
        if not selects:
            return
        (selected,) = list(selects[0].selected_columns)[:1]
        if isinstance(selected, Column) and isinstance(_table(selected.table), Table):
            self._equal.append((place, self._occurrence(selected)))
        elif isinstance(right, ScalarSelect | Grouping | Select):
            self._bound.setdefault(place, set()).add("listed")

    def _is_pinned(self, occurrence: int, *, scope: bool) -> bool:
        table = self._tables[occurrence]
        columns = {"handle", "id"} if table.name == "accounts" else {*SCOPE_COLUMNS}
        if not scope:
            columns = {c.name for c in table.c if c.primary_key or c.name.endswith("_id")}
        return any((occurrence, column) in self._bound for column in columns)

    def _spread(self, tied: set[int]) -> set[int]:
        """Add what hangs on something tied, by a key of either."""
        tied = set(tied)
        while True:
            more = {
                one[0]
                for pair in self._equal
                for one, other in (pair, pair[::-1])
                if other[0] in tied and one[0] not in tied and self._is_key(one, other)
            }
            if not more:
                return tied
            tied |= more

    def _is_key(self, one: Place, other: Place) -> bool:
        return all(
            name == "id" or name.endswith("_id") or name == "sid" for _, name in (one, other)
        )


def _nodes(construct: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield every element of a construct; a select tells its joins only when it is asked."""
    for node in visitors.iterate(construct):
        yield node
        if isinstance(node, Select):
            for source in node.get_final_froms():
                yield from visitors.iterate(source)


def _table(selectable: Any) -> Any:  # noqa: ANN401
    """Return the table behind an alias."""
    return getattr(selectable, "element", selectable)


def classified_tables() -> tuple[set[str], set[str]]:
    """Return the tables of tenants, and the others."""
    all_statements()  # imports every module that makes one
    ours = {table.name for table in metadata.tables.values() if is_of_a_tenant(table)}
    return ours, set(metadata.tables) - ours
