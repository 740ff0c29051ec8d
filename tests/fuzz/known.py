"""What there is in an install, read from its own lists, so that requests can be about it.

Nothing here knows an operation by name: the places of a path come from the list above it, and
what a field may hold from the fields of answers that are called the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

Json = Any
Place = dict[str, str]
"""The parameters of a path."""
Read = Callable[[str], Json]
"""Returns what GET answers at a path, None when it is no success."""

_MOST: Final = 12
"""Values kept of one field, and places of one path."""


class Known:
    """Paths that lead somewhere, and values that mean something."""

    def __init__(
        self,
        paths: Mapping[str, Mapping[str, Json]],
        read: Read,
        unlisted: Mapping[str, Sequence[str]],
    ) -> None:
        """Read all that the operations of `paths` list.

        `unlisted` has values of parameters of paths that no operation lists.
        """
        self._unlisted = unlisted
        self._paths = paths
        self._read = read
        self._answers: dict[str, Json] = {}
        self._places: dict[str, list[Place]] = {"": [{}]}
        self._fields: dict[str, dict[str, Json]] = defaultdict(dict)
        self._markers: dict[str, str | None] = {}
        for template in paths:
            parameters = paths[template].get("get", {}).get("parameters", ())
            has_pages = any(parameter["name"] == "marker" for parameter in parameters)
            for place in self.places(template):
                self._learn(self._answer(template, place))
                if has_pages:
                    self._markers[template.format(**place)] = self._marker(template, place)

    def places(self, template: str) -> list[Place]:
        """Return the parameters with which a path leads to something that exists."""
        if template not in self._places:
            above, _, last = template.rpartition("/")
            found = self.places(above)
            if last.startswith("{"):
                name = last[1:-1]
                found = [
                    {**place, name: value}
                    for place in found
                    for value in self._values_below(above, place, name)
                ]
            self._places[template] = found[:_MOST]
        return self._places[template]

    def _values_below(self, above: str, place: Place, name: str) -> list[str]:
        """Return what the last parameter of a path may be: what the list above it names.

        Where there is no list, such as above a page of sign-in, what it is on other paths.
        """
        if "get" in self._paths.get(above, {}):
            return list(_named(name, self._answer(above, place)))
        others = [
            each
            for each in self._paths
            if each.endswith(f"/{{{name}}}")
            and "get" in self._paths.get(each.rpartition("/")[0], {})
        ]
        found_there = [found[name] for each in others for found in self.places(each)]
        return [*found_there, *self._unlisted.get(name, ())]

    def marker(self, template: str, place: Place) -> str | None:
        """Return the marker of a list's second page, if there is one."""
        return self._markers.get(template.format(**place))

    def values(self, field: str) -> list[Json]:
        """Return what a field may hold, in the order in which it was found."""
        return list(self._fields[field].values())

    def add(self, field: str, *values: Json) -> None:
        """Say what else a field may hold."""
        for value in values:
            if len(self._fields[field]) < _MOST:
                self._fields[field].setdefault(json.dumps(value, sort_keys=True), value)

    def _answer(self, template: str, place: Place, query: str = "") -> Json:
        if "get" not in self._paths.get(template, {}):
            return None
        target = template.format(**place) + query
        if target not in self._answers:
            self._answers[target] = self._read(target)
        return self._answers[target]

    def _marker(self, template: str, place: Place) -> str | None:
        answer = self._answer(template, place, "?limit=1")
        marker: str | None = answer["meta"].get("marker") if answer else None
        return marker

    def _learn(self, answer: Json) -> None:
        for field, value in _members(answer):
            if not (isinstance(value, list) or (isinstance(value, dict) and "id" in value)):
                self.add(field, value)
            for record in _records(value):
                one = _singular(field) if isinstance(value, list) else field
                self.add(one, *(record[name] for name in ("id", "name", "crn") if name in record))


def _named(parameter: str, listing: Json) -> Iterator[str]:
    """Yield the values of a path's last parameter that a list above it speaks of."""
    stem = parameter.removesuffix("_id")
    is_id = parameter == "id" or stem != parameter
    names = (parameter, stem, *(("id", "name") if is_id else ("name", "id")))
    for _, value in _members(listing):
        for record in _records(value) if isinstance(value, list) else ():
            found = next((record[name] for name in names if name in record), None)
            found = found["id"] if isinstance(found, dict) else found
            if isinstance(found, str | int):
                yield str(found)


def _members(answer: Json) -> Iterator[tuple[str, Json]]:
    """Yield all members of all objects."""
    if isinstance(answer, dict):
        yield from answer.items()
    for child in answer.values() if isinstance(answer, dict) else answer or ():
        if isinstance(child, dict | list):
            yield from _members(child)


def _records(value: Json) -> Iterator[dict[str, Json]]:
    """Yield an object, or those in a list."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def _singular(plural: str) -> str:
    return f"{plural[:-3]}y" if plural.endswith("ies") else plural.removesuffix("s")
