"""Reading the challenges of a registry that wants a client to authenticate (RFC 9110 §11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_MAX_HEADER: Final = 4096
_SCHEME: Final = re.compile(r"[\s,]*([A-Za-z0-9!#$%&'*+.^_`|~-]+)(?:[ \t]+|[ \t]*(?=,)|[ \t]*\Z)")
_PARAMETER: Final = re.compile(
    r"[\s,]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"=]+))[ \t]*(?=,|\Z)"
)
_ESCAPED: Final = re.compile(r"\\(.)")


class Challenge(NamedTuple):
    """What a registry wants: ``basic``, or a ``bearer`` token from a realm."""

    scheme: str
    realm: str = ""
    service: str = ""
    error: str = ""
    """Why the token that came with the request does not suffice (RFC 6750 §3.1)."""


def read_challenges(headers: Sequence[str]) -> list[Challenge]:
    """Return the Bearer and Basic challenges of ``WWW-Authenticate`` headers, Bearer first.

    What cannot be read is left out; so is a parameter given twice, with its challenge.
    """
    found = [each for header in headers for each in _challenges(header[:_MAX_HEADER])]
    return sorted(found, key=lambda each: each.scheme == "basic")


def _challenges(header: str) -> Iterator[Challenge]:
    at = 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        given: list[tuple[str, str]] = []
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            name, quoted, token = parameter.groups()
            value = token if quoted is None else _ESCAPED.sub(r"\1", quoted)
            given.append((name.lower(), value))
        values = dict(given)
        if len(values) != len(given):
            continue
        kind = scheme[1].lower()
        if kind == "basic" or (kind == "bearer" and values.get("realm")):
            told = (values.get(name, "") for name in ("realm", "service", "error"))
            yield Challenge(kind, *told)
