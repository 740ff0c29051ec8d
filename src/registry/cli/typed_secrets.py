"""Read a secret from the terminal, which does not show it, or from the standard input."""

from __future__ import annotations

import getpass
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from registry.cli.failure import Misuse


def read_secret(prompt: str, name: str) -> str:
    """Return a secret typed at the terminal, or one line of the standard input.

    Raises:
        Misuse: there is none.

    """
    try:
        typed = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()
    except (EOFError, UnicodeDecodeError):
        typed = ""
    return checked_secret(typed, name)


def checked_secret(typed: str, name: str) -> str:
    """Return what was typed without the space around it; raise `Misuse` if nothing is left."""
    secret = typed.strip()
    if not secret:
        raise Misuse(f"no {name} was given; type it, or pipe it to the standard input")
    return secret


@contextmanager
def prompting(prompt: str) -> Iterator[None]:
    """Show a prompt at the terminal, which meanwhile does not show what is typed."""
    if not sys.stdin.isatty():
        yield
        return
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
