"""Refusals of ``/v1`` that a page shows beside the form that was sent."""

from __future__ import annotations

from typing import Final, NamedTuple

from registry.console.control_plane import Refused

_INLINE: Final = (400, 403, 404, 409)


class Complaint(NamedTuple):
    """What is wrong with a form."""

    status: int = 200
    text: str = ""
    """A sentence."""
    field: str = ""
    """The field of ``/v1`` that the answer names, if any."""


NO_COMPLAINT: Final = Complaint()


def complaint_of(error: Refused) -> Complaint:
    """Return what to say about an error.

    Raises:
        Refused: `error` itself, which is not the form's: a 401, a 429 or a failure.

    """
    if error.status not in _INLINE:
        raise error
    return Complaint(error.status, error.sentence, str(error.params.get("field", "")))
