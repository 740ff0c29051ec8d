"""The operations of the S3 endpoint, as a table beside this module has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def operations() -> Iterator[tuple[str, str]]:
    """Yield the lines of the table: a request, and the operation that it asks for."""
    _, *blocks = Path(__file__).with_name("s3_operations.txt").read_text().split("\n\n")
    for line in "\n".join(blocks).split("\n"):
        request, _, operation = line.partition("  ")
        if operation:
            yield request, operation
