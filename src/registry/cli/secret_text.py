"""Read secrets without an echo, and print new ones once, in a form that pipes."""

from __future__ import annotations

import argparse
import getpass
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cloudcore.command_line import Record
from registry.cli.failure import Misuse
from registry.cli.output import TABLE, printable, write_record


def add_quiet_secret(parser: argparse.ArgumentParser, words: str) -> None:
    """Add ``--quiet``, which prints only the new secret, and the rest to the standard error."""
    parser.add_argument("--quiet", "-q", action="store_true", help=f"print only {words}")


def show_secret(
    options: argparse.Namespace,
    words: str,
    record: Record,
    labels: Mapping[str, str],
    document: Record | None = None,
) -> None:
    """Print a record with a new secret; its last label names the field of the secret.

    As a table: the words, and a line for each label. With ``--quiet`` the standard output has the
    secret and nothing else, so that it can be piped. In other forms: the document, or the record.
    """
    if options.output != TABLE:
        write_record(record if document is None else document, options.output)
        return
    *_, secret = labels.values()
    if options.quiet:
        sys.stderr.write(f"{printable(words)}\n")
        sys.stdout.write(f"{record[secret]}\n")
        return
    width = max(map(len, labels))
    lines = [f"  {label:<{width}}  {printable(record[field])}" for label, field in labels.items()]
    shown_once = "Keep it now: it is shown this once."
    sys.stdout.writelines(f"{line}\n" for line in (printable(words), "", *lines, "", shown_once))


def read_secret(prompt: str, name: str, around: str | None = "\r\n") -> str:
    """Return a secret typed at the terminal without an echo, or a line of the standard input.

    What is `around` it is no part of it; None: white space.

    Raises:
        Misuse: there is none.

    """
    try:
        typed = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()
    except (EOFError, UnicodeDecodeError):
        typed = ""
    return checked_secret(typed, name, around)


def checked_secret(typed: str, name: str, around: str | None = None) -> str:
    """Return what was typed without what is around it; raise `Misuse` if nothing is left."""
    secret = typed.strip(around)
    if not secret:
        raise Misuse(f"no {name} was given; type it, or pipe it to the standard input")
    return secret


def read_new_password() -> str:
    """Return a new password: typed twice at a terminal, or a line of the standard input.

    Raises:
        Misuse: there is none, or the two differ.

    """
    password = read_secret("New password: ", "new password")
    if sys.stdin.isatty() and read_secret("The same again: ", "new password") != password:
        raise Misuse("the two passwords differ; nothing was changed, try again")
    return password


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
