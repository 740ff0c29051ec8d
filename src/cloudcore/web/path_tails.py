"""The tail of a path: a last parameter that covers the rest of the path, slashes too.

The framework splits a path into segments and normalises it, so ``a%2Fb``, ``a//b`` and ``a/`` would
become other keys. Here the tail is cut from the path as it was sent and percent-decoded once; the
framework gets `PLACEHOLDER` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from cloudcore.errors import InvalidInput
from cloudcore.web.query import decode_text

PLACEHOLDER: Final = "-"


class TailedPath(NamedTuple):
    """A path that ends in a tail."""

    head: str
    """The path before the tail, decoded; it ends in a slash."""
    tail: str | None
    """The tail; None if it is not UTF-8, or has a malformed escape or a null character."""


class Tails:
    """Finds the tails of paths, by the templates of the routes that declare one."""

    def __init__(self, templates: Iterable[str] = ()) -> None:
        self._heads = [template.split("/")[:-1] for template in templates]

    def find(self, path: bytes) -> TailedPath | None:
        """Split a path as it was sent; return None if it has no tail or an empty one."""
        for head in self._heads:
            *before, tail = path.split(b"/", len(head))
            if tail and len(before) == len(head) and all(map(_fits, head, before)):
                shown = unquote(b"/".join(before).decode("utf-8", "replace"))
                return TailedPath(f"{shown}/", _decoded(tail))
        return None


def collision(template: str, others: Iterable[str]) -> str | None:
    """Return one of `others` that can match a path of `template`, which has a tail; or None."""
    head = template.split("/")[:-1]
    colliding = (each for each in others if each != template and _collide(head, each.split("/")))
    return next(colliding, None)


def is_ambiguous(path: bytes) -> bool:
    """Return True if a path has an empty segment, an encoded slash or a null character.

    The framework would change the first two when it splits the path; a database refuses the last.
    """
    lowered = path.lower()
    return (
        b"//" in path
        or (len(path) > 1 and path.endswith(b"/"))
        or b"%2f" in lowered
        or b"%00" in lowered
    )


def _fits(expected: str, segment: bytes) -> bool:
    if not expected:  # before the first slash
        return not segment
    if not segment or is_ambiguous(segment):
        return False
    return expected.startswith("{") or unquote(segment.decode("utf-8", "replace")) == expected


def _decoded(tail: bytes) -> str | None:
    try:
        return decode_text(tail, plus_is_blank=False, unambiguous=True)
    except InvalidInput:
        return None


def _collide(head: Sequence[str], other: Sequence[str]) -> bool:
    """Return True if a path with a tail after `head` can match `other`, or the reverse.

    The framework does not backtrack from a literal segment to a parameter. So a literal segment
    hides a parameter at the same place even if the paths differ later.
    """
    for mine, theirs in zip(head, other, strict=False):
        if mine.startswith("{") != theirs.startswith("{"):
            return True
        if not mine.startswith("{") and mine != theirs:
            return False
    return len(other) > len(head)
