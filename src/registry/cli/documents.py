"""JSON documents that commands read from a file or the standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from registry.cli.failure import Misuse


def read_document(name: str) -> dict[str, Any]:
    """Return the document in a file; ``-`` is the standard input.

    Raises:
        Misuse: it holds no JSON object.

    """
    where = "the standard input" if name == "-" else name
    text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{where} holds no JSON object: {error}") from None
