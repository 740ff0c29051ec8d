"""The shape of a row in the table of bad input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.integration.bad_input.world import World

Text = str | Callable[[World], str]
Body = bytes | Callable[[World], bytes]


@dataclass(frozen=True)
class Case:
    """One request and the only answers that are right.

    `target` is the raw request target; ``{repo}`` and its like are filled from the world.
    `codes` are the error codes that may come with a refusal, empty where the answer is no refusal.
    """

    id: str
    method: str
    target: str
    statuses: frozenset[int]
    codes: frozenset[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body = b""
    answer: Mapping[str, str] = field(default_factory=dict)
    """Headers that the answer must have."""
    ends_upload: bool = False
    """The refusal may end the upload session it was about."""


def asked(
    name: str,
    request: str,
    *expected: int | str,
    headers: Mapping[str, str] | None = None,
    body: Body = b"",
    answer: Mapping[str, str] | None = None,
    ends_upload: bool = False,
) -> Case:
    """Return a case; `request` is "METHOD target", `expected` are statuses and error codes."""
    method, _, target = request.partition(" ")
    return Case(
        name,
        method,
        target,
        frozenset(each for each in expected if isinstance(each, int)),
        frozenset(each for each in expected if isinstance(each, str)),
        headers or {},
        body,
        answer or {},
        ends_upload,
    )
