"""Ask before an action that is hard to undo, or a secret that others on the way can read."""

from __future__ import annotations

import argparse
import sys
from ipaddress import ip_address
from urllib.parse import urlsplit

from registry.cli.failure import CommandFailure, Misuse
from registry.cli.output import printable


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, which answers the question in advance."""
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def confirm(options: argparse.Namespace, question: str) -> None:
    """Ask at a terminal; without a terminal, or with ``--yes``, return at once.

    Raises:
        CommandFailure: the answer is not yes.

    """
    if options.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailure("nothing was changed")


def leaves_readable(url: str) -> bool:
    """Return True if what is sent to a base URL leaves this machine unencrypted."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def check_readers(url: str, *, is_accepted: bool) -> None:
    """Return if a secret may be sent to `url`; ask at a terminal unless that is accepted already.

    Raises:
        CommandFailure: the person declines.
        Misuse: there is nobody to ask.

    """
    if not leaves_readable(url):
        return
    words = f"{url} is plain HTTP: anybody on the way to it can read your sign-in and use it"
    if is_accepted:
        sys.stderr.write(f"entrepot: warning: {words}\n")
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse(f"{words}; use its https:// URL, or accept that with --insecure-http")
    sys.stderr.write(f"{words}.\nSend it nevertheless? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailure("nothing was sent; use the https:// URL of the registry")
