"""What the shared tests need of the resources that are described: all of it follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cloudcore.resources.resource import Record, Resource, Verb, bare, camel
from registry.composition.families import FAMILIES

RESOURCES: Final[tuple[Resource[Record], ...]] = tuple(
    resource for family in FAMILIES for resource in family.resources
)
NEW: Final = 7
"""The number of the sample that only the tests of creation make."""
_LINES: Final[Mapping[Verb, str]] = {
    "create": "POST {list} {action} 201 key",
    "list": "GET {list} {action} 200",
    "get": "GET {one} {action} 200",
    "update": "PATCH {one} {action} 200",
    "delete": "DELETE {one} {action} 204",
}


def operations() -> Iterator[tuple[str, str]]:
    """Yield the service and the line of each standard method, as in `tests.spec.operations`."""
    for each in RESOURCES:
        for verb in each.methods:
            action = each.action(verb).partition(":")[2]
            one = each.path_of_one.replace(":str", "")
            yield each.service, _LINES[verb].format(list=each.path, one=one, action=action)


def samples(number: int = 0) -> dict[str, Mapping[str, object]]:
    """Return a request that creates one of each resource, by path."""
    return {each.path: each.sampled(number) for each in RESOURCES if "create" in each.methods}


def change_of(of: Resource[Any]) -> dict[str, object]:
    """Return a change that makes a difference."""
    given = {each.name: each for each in of.of_use("given")}
    if "description" in given:
        return {"description": "New."}
    return {"tags": {"a": "b"}}


def fields() -> set[tuple[str, str]]:
    """Return the operations and fields of text that name no other resource."""
    found = set()
    for each in RESOURCES:
        for verb, uses in (("POST", ("given", "fixed")), ("PATCH", ("given",))):
            path = each.path if verb == "POST" else each.path_of_one.replace(":str", "")
            found |= {
                (f"{verb} {path}", field.name)
                for field in each.of_use(*uses)
                if not field.is_reference and bare(field.plain) is str
            }
    return found


def answers() -> dict[str, str]:
    """Return the schema of what the commands of each noun print."""
    return {each.many.replace("_", "-"): f"{camel(each.one)}Record" for each in RESOURCES}
