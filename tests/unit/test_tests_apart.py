"""Modules of tests stand apart: what two of them share is in a module that is no test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]


def is_test(module: str) -> bool:
    """Tell whether pytest collects a module, by its name."""
    return module.rpartition(".")[2].startswith("test_")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a module, however deep; expressions hold no imports."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield all that a module of a package imports, whether it is a module or a name in one."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            parts = [*above, node.module or ""] if node.level else [node.module or ""]
            module = ".".join(filter(None, parts))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def modules_of_tests(source: str, package: str) -> set[str]:
    """Return the modules of tests that a module imports."""
    return {
        name
        for name in imported(ast.parse(source), package)
        if name.startswith("tests.") and is_test(name)
        if (TESTS.parent / f"{name.replace('.', '/')}.py").is_file()
    }


@pytest.mark.parametrize(
    "source",
    [
        "import tests.unit.test_clock",
        "import tests.unit.test_clock as other",
        "from tests.unit import test_clock",
        "from tests.unit.test_clock import anything",
        "from . import test_clock",
        "from .test_clock import anything",
        "from ..unit.test_clock import anything",
        "def late():\n    from tests.unit.test_clock import anything",
    ],
)
def test_each_form_of_import_is_seen(source: str) -> None:
    assert modules_of_tests(source, "tests.unit") == {"tests.unit.test_clock"}


def test_other_modules_may_be_imported() -> None:
    source = "from tests import soak\nfrom tests.soak import FACTOR\nimport json"
    assert not modules_of_tests(source, "tests.unit")


def test_no_module_imports_a_module_of_tests() -> None:
    found, names = {}, {path.stem for path in TESTS.rglob("test_*.py")}
    for path in TESTS.rglob("*.py"):
        if names.isdisjoint(re.findall(r"\btest_\w+", path.read_text())):
            continue
        inner = path.relative_to(TESTS.parent)
        package = ".".join(inner.parent.parts)
        if modules := modules_of_tests(path.read_text(), package):
            found[str(inner)] = modules
    assert found == {}
