"""Read the docstrings below fields of Structs, for the OpenAPI document."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec.inspect import StructType, multi_type_info


def described_fields(types: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Return field docstrings by Struct name and field, of all Structs within `types`.

    Without Python sources there are none.
    """
    return {struct.__name__: _words(struct) for struct in _structs(multi_type_info(types))}


def _structs(described: Sequence[msgspec.Struct]) -> set[type]:
    """Return the Structs within msgspec's type descriptions, at any depth."""
    found: set[type] = set()
    waiting: list[Any] = [*described]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting.extend(each)
        elif isinstance(each, msgspec.Struct) and getattr(each, "cls", None) not in found:
            if isinstance(each, StructType):
                found.add(each.cls)
            waiting.extend(getattr(each, name) for name in each.__struct_fields__)
    return found


def _words(struct: type) -> dict[str, str]:
    """Return the docstrings of a Struct's fields, including inherited ones.

    A Struct that is made at run time may have those of another one (``described_by``), and others
    by name (``field_words``).
    """
    found: dict[str, str] = {}
    if (described_by := vars(struct).get("described_by")) is not None:
        found |= _words(described_by)
    for base in reversed(struct.__mro__):
        found |= _of_module(base.__module__).get(base.__qualname__, {})
    more: Mapping[str, str] = vars(struct).get("field_words", {})
    return found | dict(more)


@cache
def _of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the field docstrings of a module's classes, by class name."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (KeyError, OSError, TypeError):  # created at run time, or without source
        return {}
    classes = (each for each in ast.parse(source).body if isinstance(each, ast.ClassDef))
    return {definition.name: _of_class(definition) for definition in classes}


def _of_class(definition: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = inspect.cleandoc(words)
    return found
