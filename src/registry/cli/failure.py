"""The errors that a command prints instead of a traceback, and its exit statuses.

0  success
1  failure: the registry refused or cannot be reached, or a check found something wrong
2  misuse: an invalid option, setting or document
3  not found
4  not signed in, or the sign-in has ended
"""

from __future__ import annotations

from cloudcore.command_failures import (
    FAILED,
    MISUSE,
    NOT_FOUND,
    SIGNED_OUT,
    CommandFailure,
    Missing,
    Misuse,
)

__all__ = (
    "FAILED",
    "MISUSE",
    "NOT_FOUND",
    "SIGNED_OUT",
    "CommandFailure",
    "Missing",
    "Misuse",
    "NotSignedIn",
)


class NotSignedIn(CommandFailure):
    """There is no sign-in to this registry, or it has ended."""

    exit_status = SIGNED_OUT
