"""Notices that a page shows once after a change, with a button that undoes it.

A notice is in a sealed cookie, which the page that shows it deletes: a reload shows it no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

NOTICE_COOKIE: Final = "entrepot_console_notice"
NOTICE_SECONDS: Final = 60
"""A browser that comes later shows no notice."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """A notice to show, and the form that undoes the change."""

    text: str
    undo: str = ""
    """Path of a page that takes a POST; empty if nothing can be undone."""
    fields: Mapping[str, str] = {}
    """Fields of that POST, but for the CSRF token."""
    undo_action: str = ""
    """The action that the POST needs."""
    undo_crn: str = ""
    """The resource on which it needs it; empty if that is not known."""
