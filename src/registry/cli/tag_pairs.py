"""Tags of resources on the command line: ``KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Iterable

from registry.cli.failure import Misuse
from registry.cli.output import printable


def pairs(texts: Iterable[str], option: str = "--tag", shape: str = "KEY=VALUE") -> dict[str, str]:
    """Return tags written as ``KEY=VALUE``; the last of a key counts.

    Raises:
        Misuse: one has no equals sign; the error names the option and its shape.

    """
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise Misuse(f"{option} takes {shape}, not {printable(text)!r}")
        found[key] = value
    return found
