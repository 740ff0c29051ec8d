"""What a person is told instead of a traceback, and the exit statuses of the command.

0  all is well
1  something is not: the registry refused, or cannot be reached
2  misuse: an option or a setting that cannot be
3  there is no such thing
4  not signed in, or no longer
"""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
MISUSE: Final = 2
NOT_FOUND: Final = 3
SIGNED_OUT: Final = 4


class CommandFailure(Exception):
    """The command ends with this one line, which says what to do where that is not plain."""

    exit_status = FAILED


class Misuse(CommandFailure):
    """The command was asked for what cannot be."""

    exit_status = MISUSE


class Missing(CommandFailure):
    """There is no such thing."""

    exit_status = NOT_FOUND


class NotSignedIn(CommandFailure):
    """There is no sign-in to this registry, or it is over."""

    exit_status = SIGNED_OUT
