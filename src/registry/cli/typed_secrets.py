"""Read a secret from the terminal, which does not show it, or from the standard input."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from registry.cli.failure import Misuse

_LINE_ENDS: Final = "\r\n"


def read_secret(prompt: str, name: str, ends: str | None = _LINE_ENDS) -> str:
    """Return a secret typed at the terminal, or one line of the standard input.

    `ends` are the characters that are no part of it, at its ends; None: white space.

    Raises:
        Misuse: there is none.

    """
    try:
        typed = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()
    except (EOFError, UnicodeDecodeError):
        typed = ""
    return checked_secret(typed, name, ends)


def read_new_password() -> str:
    """Return a new password: typed twice at a terminal, or a line of the standard input.

    Raises:
        Misuse: there is none, or the two differ.

    """
    password = read_secret("New password: ", "new password")
    if sys.stdin.isatty() and read_secret("The same again: ", "new password") != password:
        raise Misuse("the two passwords differ; nothing was changed, try again")
    return password


def checked_secret(typed: str, name: str, ends: str | None = None) -> str:
    """Return what was typed without its `ends`; raise `Misuse` if nothing is left."""
    secret = typed.strip(ends)
    if not secret:
        raise Misuse(f"no {name} was given; type it, or pipe it to the standard input")
    return secret


@contextmanager
def prompting(prompt: str) -> Iterator[None]:
    """Show a prompt at the terminal, which meanwhile does not show what is typed."""
    if not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415 - not on all systems that have getpass

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = termios.tcgetattr(terminal)
    silent[3] &= ~termios.ECHO
    try:
        termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
        sys.stderr.write(prompt)
        sys.stderr.flush()
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)  # a half of a secret is no command
        sys.stderr.write("\n")
        sys.stderr.flush()
