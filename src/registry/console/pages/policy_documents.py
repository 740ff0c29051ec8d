"""Policy documents in forms: parse them, and find the line that an error is about."""

from __future__ import annotations

from typing import Any

import msgspec

from registry.console.control_plane import Refused
from registry.console.pages.refusals import Complaint, complaint_of


def parse_document(written: str) -> dict[str, Any]:
    """Return the JSON object of a form.

    Raises:
        ValueError: it is none.

    """
    try:
        found: dict[str, Any] = msgspec.json.decode(written, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The document is no JSON object: {error}.") from None
    return found


def written_document(document: object) -> str:
    """Return a document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def complaint_about(error: Refused, written: str) -> Complaint:
    """Return what to say about a refused document, with the line of the value that is wrong."""
    found = complaint_of(error)
    value = error.params.get("value")
    line = line_of(value, written) if isinstance(value, str) else 0
    return found._replace(text=f"Line {line}: {found.text}") if line else found


def line_of(value: str, written: str) -> int:
    """Return the number of the first line that has this string, or 0."""
    wanted = msgspec.json.encode(value).decode()
    for number, line in enumerate(written.splitlines(), 1):
        if wanted in line:
            return number
    return 0
