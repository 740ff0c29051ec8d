"""Services are functions of a transaction; drivers take no lock and publish no event."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import registry
from cloudcore import identity

SOURCES: Final = Path(next(iter(registry.__path__)))
IDENTITY: Final = Path(next(iter(identity.__path__)))
DRIVERS: Final = ("distribution", "control", "console", "cli")
LAYERS: Final = (*DRIVERS, "services", "metadata")
TRANSACTIONS: Final = ("read", "write", "write_relaxed")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(layer: str, sources: Path = SOURCES) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of a layer by their paths."""
    for path in sorted((sources / layer).rglob("*.py")):
        if "migrations" not in path.parts:
            yield str(path.relative_to(sources)), ast.parse(path.read_text())


def names_used(tree: ast.AST) -> set[str]:
    """Return the names that a module imports, reads or looks up in other modules."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    looked_up = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return imported | looked_up


def is_for_services(name: str) -> bool:
    """Return True if only services may call a function of this name."""
    return name.startswith(("lock_", "drop_")) or name in ("publish", "emit")


def could_be_plain(function: Function) -> bool:
    """Return True if a coroutine waits for nothing but one transaction."""
    waits = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith)
        or (isinstance(node, ast.comprehension) and node.is_async)
    ]
    handlers = any(isinstance(node, ast.Try) for node in ast.walk(function))
    repeats = any(isinstance(node, ast.For | ast.While) for node in ast.walk(function))
    return len(waits) == 1 and is_transaction(waits[0]) and not handlers and not repeats


def is_transaction(node: ast.AST) -> bool:
    """Return True if a node awaits ``….database.read(…)``, or ``write``."""
    call = node.value if isinstance(node, ast.Await) else None
    method = call.func if isinstance(call, ast.Call) else None
    return (
        isinstance(method, ast.Attribute)
        and method.attr in TRANSACTIONS
        and ast.unparse(method.value).endswith("database")
    )


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return await ctx.database.read(f, name)", True),
        ("found = await ctx.database.write(f)\n    return found", True),
        ("await database.write_relaxed(f)", True),
        ("return await ctx.reader.open(name)", False),
        ("await ctx.database.read(f)\n    await ctx.database.write(f)", False),
        ("while await ctx.database.read(f):\n        pass", False),
        ("async with ctx.leases.hold():\n        await ctx.database.write(f)", False),
    ],
)
def test_a_coroutine_without_need_is_seen(body: str, found: bool) -> None:
    (function,) = ast.parse(f"async def f(ctx):\n    {body}").body
    assert isinstance(function, ast.AsyncFunctionDef)
    assert could_be_plain(function) is found


def test_a_service_that_needs_one_transaction_is_a_function_of_it() -> None:
    found = [
        (path, node.name)
        for path, tree in modules("services")
        for node in tree.body
        if isinstance(node, ast.AsyncFunctionDef)
        if not node.name.startswith("_") and could_be_plain(node)
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "from registry.metadata.repositories.repository import lock_repository",
        "from registry.services.events import publish",
        "from registry.services.tags import pointers\npointers.drop_tag(tx)",
    ],
)
def test_what_drivers_must_not_call_is_seen(source: str) -> None:
    assert any(map(is_for_services, names_used(ast.parse(source))))


def test_drivers_take_no_lock_and_publish_no_event() -> None:
    found = {
        path: names
        for layer in DRIVERS
        for path, tree in modules(layer)
        if (names := set(filter(is_for_services, names_used(tree))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("sources", "names"), [(SOURCES, LAYERS), (IDENTITY, ("routes", "services", "rows"))]
)
def test_functions_of_one_name_in_two_layers_differ_in_their_first_parameter(
    sources: Path, names: tuple[str, ...]
) -> None:
    layers = defaultdict(set)
    for layer in names:
        for _, tree in modules(layer, sources):
            for node in tree.body:
                if isinstance(node, Function) and not node.name.startswith("_") and node.args.args:
                    layers[node.name, node.args.args[0].arg].add(layer)
    twins = {
        name
        for (name, first), where in layers.items()
        if first in ("tx", "ctx") and where - {min(where)}
    }
    assert twins == set()
