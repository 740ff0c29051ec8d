"""The errors that a command prints instead of a traceback, and its exit statuses.

0  success
1  failure: the server refused or cannot be reached, or a check found something wrong
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

_EXIT_STATUSES: Final = {401: SIGNED_OUT, 404: NOT_FOUND}


class CommandFailure(Exception):
    """Ends the command with a one-line message, which says what to do unless that is obvious."""

    exit_status = FAILED


class Misuse(CommandFailure):
    """An option, setting or document is invalid."""

    exit_status = MISUSE


class Missing(CommandFailure):
    """A resource that the command names does not exist."""

    exit_status = NOT_FOUND


class NotSignedIn(CommandFailure):
    """The user is not signed in to this server, or the session has ended."""

    exit_status = SIGNED_OUT


class RequestRefused(CommandFailure):
    """The server answered with an error.

    `code` is the code in the error envelope, or of OAuth; empty if the response has neither.
    """

    def __init__(self, message: str, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.exit_status = _EXIT_STATUSES.get(status, self.exit_status)

    def with_advice(self, advice: str) -> RequestRefused:
        """Return this error with advice on what to do about it."""
        return RequestRefused(f"{self}; {advice}", self.status, self.code)
