"""Ask at the terminal: for confirmation, and for secrets."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from cloudcore.command_failures import CommandFailure, Misuse
from cloudcore.commands.records import printable


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, which confirms in advance."""
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def confirm(options: argparse.Namespace, question: str) -> None:
    """Ask for confirmation at a terminal; without a terminal, or with ``--yes``, do not ask.

    Raise `CommandFailure` if the answer is not yes.
    """
    if not options.yes and _has_terminal() and not _is_answered_yes(printable(question)):
        raise CommandFailure("nothing was changed")


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _is_answered_yes(question: str) -> bool:
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def is_sent_in_the_clear(url: str) -> bool:
    """Return True if requests to a base URL would leave this machine unencrypted."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def check_plain_http(url: str, *, is_accepted: bool) -> None:
    """Ask whether a secret may be sent to `url`, if that would be unencrypted.

    If `is_accepted`, only print a warning. Raise `CommandFailure` if the person does not answer
    yes; `Misuse` if there is no terminal to ask at.
    """
    if not is_sent_in_the_clear(url):
        return
    words = f"{url} is plain HTTP: anybody on the way to it can read your sign-in and use it"
    if is_accepted:
        sys.stderr.write(f"entrepot: warning: {words}\n")
        return
    if not _has_terminal():
        raise Misuse(f"{words}; use its https:// URL, or accept that with --insecure-http")
    if not _is_answered_yes(f"{words}.\nSend it nevertheless?"):
        raise CommandFailure("nothing was sent; use the https:// URL of the registry")


_LINE_ENDS: Final = "\r\n"


def read_secret(prompt: str, name: str, ends: str | None = _LINE_ENDS) -> str:
    """Read a secret from the terminal, or from one line of standard input.

    The characters in `ends` are stripped at both ends; None means white space.

    Raise `Misuse` if the secret is empty.
    """
    try:
        typed = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()
    except (EOFError, UnicodeDecodeError):
        typed = ""
    return checked_secret(typed, name, ends)


def read_new_password() -> str:
    """Read a new password, twice from the terminal or once from a line of standard input.

    Raise `Misuse` if the password is empty, or the two entries differ.
    """
    password = read_secret("New password: ", "new password")
    if sys.stdin.isatty() and read_secret("The same again: ", "new password") != password:
        raise Misuse("the two passwords differ; nothing was changed, try again")
    return password


def checked_secret(typed: str, name: str, ends: str | None = None) -> str:
    """Return a typed secret without the characters `ends` (None: white space) at its ends.

    Raise `Misuse` if nothing is left.
    """
    secret = typed.strip(ends)
    if not secret:
        raise Misuse(f"no {name} was given; type it, or pipe it to the standard input")
    return secret


@contextmanager
def prompting(prompt: str) -> Iterator[None]:
    """Show a prompt and turn off the echo during the block; without a terminal, do nothing."""
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
        # And drop typed input: the rest of a secret must not reach the shell.
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        sys.stderr.write("\n")
        sys.stderr.flush()
