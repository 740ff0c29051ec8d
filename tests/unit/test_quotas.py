"""What the sources say of quotas."""

from __future__ import annotations

import ast
from pathlib import Path

from cloudcore.errors import QuotaExceeded
from registry.composition.families import FAMILIES
from tests.integration.statement_scope import all_statements

SOURCES = Path(__file__).parent.parent.parent / "src"


def _kinds(kind: type[QuotaExceeded]) -> set[str]:
    return {kind.__name__}.union(*(_kinds(each) for each in kind.__subclasses__()))


def test_one_function_makes_every_refusal() -> None:
    """So each has ``quota``, ``limit`` and ``used``."""
    all_statements()  # imports every module that could define another kind of it
    kinds, found = _kinds(QuotaExceeded), []
    assert "BytesQuotaExceeded" in kinds
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if not any(kind in text for kind in kinds):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call | ast.Raise):
                made = node.func if isinstance(node, ast.Call) else node.exc
                if made is not None and ast.unparse(made).rpartition(".")[2] in kinds:
                    found.append(f"{path.name}:{node.lineno}")
    assert found == []


def test_what_an_account_has_is_counted_for_each_of_its_quotas() -> None:
    counted = {each.quota for family in FAMILIES for each in family.runtime.uses}
    every = {each for family in FAMILIES for each in family.quotas}
    assert {each for each in every if each.per == "account"} == counted
