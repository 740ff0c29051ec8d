"""Which values a field may have, so that a refusal can name them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import inspect

_STEP: Final = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def choices(shape: Any, path: str) -> list[str]:  # noqa: ANN401 - a type
    """Return the values of the enumeration at a path such as ``rules[0].selector``."""
    kinds = list(_plain(inspect.type_info(shape)))
    for step in _STEP.findall(path):
        kinds = [each for kind in kinds for inner in _inside(kind, step) for each in _plain(inner)]
    return [str(value) or '""' for kind in kinds for value in _values(kind)]


def _plain(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the types that a type is made of: without metadata, and each of a union."""
    if isinstance(kind, inspect.Metadata):
        yield from _plain(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _plain(each)
    else:
        yield kind


def _inside(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        yield from (field.type for field in kind.fields if field.encode_name == step)
    elif isinstance(kind, inspect.CollectionType):
        yield kind.item_type
    elif isinstance(kind, inspect.DictType):
        yield kind.value_type


def _values(kind: inspect.Type) -> Iterator[object]:
    if isinstance(kind, inspect.LiteralType):
        yield from kind.values
    elif isinstance(kind, inspect.EnumType):
        yield from (member.value for member in kind.cls)
