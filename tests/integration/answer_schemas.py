"""The schemas of what ``/v1`` answers, in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def answers(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas of all that successes hold, at any depth, by name."""
    schemas: dict[str, Any] = described["components"]["schemas"]
    waiting: list[Any] = [
        response
        for methods in described["paths"].values()
        for operation in methods.values()
        for status, response in operation["responses"].items()
        if status < "300"
    ]
    seen: set[str] = set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, dict):
            name = str(each.get("$ref", "")).rpartition("/")[2]
            if name in schemas and name not in seen:
                seen.add(name)
                waiting.append(schemas[name])
                yield name, schemas[name]
            waiting.extend(each.values())
