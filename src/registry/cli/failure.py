"""The errors that a command prints instead of a traceback, and its exit statuses.

0  success
1  failure: the registry refused or cannot be reached, or a check found something wrong
2  misuse: an invalid option, setting or document
3  not found
4  not signed in, or the sign-in has ended
"""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
MISUSE: Final = 2
NOT_FOUND: Final = 3
SIGNED_OUT: Final = 4


class CommandFailure(Exception):
    """End the command with this one line, which says what to do unless that is obvious."""

    exit_status = FAILED


class Misuse(CommandFailure):
    """An option, setting or document is invalid."""

    exit_status = MISUSE


class Missing(CommandFailure):
    """What the command names does not exist."""

    exit_status = NOT_FOUND


class NotSignedIn(CommandFailure):
    """There is no sign-in to this registry, or it has ended."""

    exit_status = SIGNED_OUT
