"""Windows of requests are the public catalogues' alone; other limits have codes of their own."""

from __future__ import annotations

import ast
from pathlib import Path

from cloudcore.error_codes import TABLE
from cloudcore.errors import RateLimited
from registry.composition.families import FAMILIES
from tests.databases import ROOT

GUARD = Path("cloudcore/web/guard.py")
"""Counts the requests to the operations that say `rate_limited`."""
SLOW_KEYS = Path("cloudcore/kms/services.py")


def test_only_the_guard_refuses_by_the_window_of_an_operation() -> None:
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        if "RateLimited" not in (text := file.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("RateLimited"):
                found.add(file.relative_to(ROOT / "src"))
    assert found - {SLOW_KEYS} == {GUARD}


def test_every_other_limit_has_a_code_of_its_own() -> None:
    own = {each: told for each, told in TABLE.items() if issubclass(each, RateLimited)}
    assert len(set(own.values())) == len(own) > 1
    assert {status for status, _ in own.values()} == {429}


def test_the_limited_operations_are_those_of_the_public_catalogues() -> None:
    limited = {
        family.name
        for family in FAMILIES
        for handler in family.runtime.routes
        if handler.opt.get("rate_limited")
    }
    assert limited == {"catalog"}
