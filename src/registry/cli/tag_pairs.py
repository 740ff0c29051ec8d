"""Tags of resources on the command line: ``KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Iterable

from registry.cli.failure import Misuse
from registry.cli.output import printable


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return tags written as ``KEY=VALUE``; the last of a key counts.

    Raises:
        Misuse: one has no equals sign.

    """
    return dict(_pair(text) for text in texts)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise Misuse(f"a tag is KEY=VALUE, not {printable(text)!r}")
    return key, value
