"""Refuse JSON that is costly or ambiguous: count names and values, reject duplicate keys.

A parser turns two bytes such as ``[]`` into an object of 50 to 100 bytes, and holds the
interpreter's lock meanwhile. Counting before parsing creates no objects, and other threads can run
between its steps of `STEP_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple


class NamedTwice(ValueError):
    """A JSON object has a key twice."""


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object; for use as the ``object_pairs_hook`` of `json`.

    Raise `NamedTwice` if a key occurs twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NamedTwice("an object names a key twice")
    return found


STEP_BYTES: Final = 64 * 1024


class JsonSize(NamedTuple):
    """The counts of a document; they are too low if counting stopped at the caller's limit."""

    names: int
    """Names of members in all objects."""
    values: int
    """Strings, numbers, literals, objects and arrays; an empty object or array counts as two."""

    @property
    def parts(self) -> int:
        """Return the number of names and values."""
        return self.names + self.values


def json_size(document: bytes | memoryview, most: int) -> JsonSize:
    """Count the names and values of `document`; stop beyond `most` parts.

    The counts are exact up to the first syntax error, where every parser stops.
    """
    names = values = 0
    for outside in _outside_texts(bytes(document)):
        names += outside.count(b":")
        values += len(outside) - len(outside.translate(None, b",[{"))  # three counts in one
        if names + values > most:
            break
    return JsonSize(names, values + 1)


def _outside_texts(document: bytes) -> Iterator[bytes]:
    """Yield the document without its strings, in steps of up to `STEP_BYTES`."""
    start, is_inside = 0, False
    while start < len(document):
        step = document[start : start + STEP_BYTES]
        if len(step) == STEP_BYTES and (len(step) - len(step.rstrip(b"\\"))) % 2:
            step = step[:-1]  # do not split an escape
        start += len(step)
        if b"\\" in step:
            # Pairs of backslashes first, so that the second one does not count as an escape.
            step = step.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = step.split(b'"')
        yield b"".join(pieces[is_inside::2])
        is_inside ^= len(pieces) % 2 == 0
