"""``docker-credential-entrepot``: the credential helper of container clients.

A client runs it with a verb, writes to its standard input and reads its standard output. An error
is one line on the standard output, with exit status 1; clients compare these lines with known texts
(https://github.com/docker/docker-credential-helpers). Passwords come from the sign-in of ``entrepot
login``, or from the access key in the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cloudcore.command_failures import CommandFailure
from registry.cli.client.container_passwords import (
    PasswordSource,
    current_password,
    find_source,
    forget_password,
    list_hosts,
)

NAME: Final = "docker-credential-entrepot"
_USAGE: Final = f"Usage: {NAME} <store|get|erase|list|version>"
_NOT_FOUND: Final = "credentials not found in native keychain"
_NO_SERVER: Final = "no credentials server URL"
_NO_USERNAME: Final = "no credentials username"
_USERNAME: Final = "token"
_MAX_INPUT: Final = 64 * 1024


class _Stored(msgspec.Struct, rename="pascal"):
    """A login that a client asks the helper to store."""

    server: str = msgspec.field(name="ServerURL", default="")
    username: str = ""
    secret: str = ""


def main() -> int:
    """Run the verb in the command line; return the exit status."""
    if len(sys.argv) != 2 or sys.argv[1] in ("--help", "-h"):
        sys.stdout.write(f"{_USAGE}\n")
        return 0 if len(sys.argv) == 2 else 1
    try:
        answer = _answer(sys.argv[1], os.environ)
    except (CommandFailure, OSError) as error:
        sys.stdout.write(f"{' '.join(str(error).split())}\n")
        return 1
    sys.stdout.write(answer)
    return 0


def _answer(verb: str, environ: Mapping[str, str]) -> str:
    verbs: Mapping[str, Callable[[Mapping[str, str]], str]] = {
        "get": _get,
        "store": _store,
        "erase": _erase,
        "list": _list,
        "version": _version,
        "--version": _version,
        "-v": _version,
    }
    if verb not in verbs:
        raise CommandFailure(f"{NAME}: unknown action: {verb}")
    return verbs[verb](environ)


def _get(environ: Mapping[str, str]) -> str:
    server, source = _source(_read().decode(errors="replace").strip(), environ)
    if source is None:
        raise CommandFailure(_NOT_FOUND)
    password = current_password(source, environ)
    return _json({"ServerURL": server, "Username": password.username, "Secret": password.password})


def _store(environ: Mapping[str, str]) -> str:
    """Accept a login to our registry without storing it; refuse any other.

    Nothing is stored, because ``get`` makes passwords. ``docker login`` calls this, also if
    ``entrepot docker-login`` has run ``docker login``.
    """
    try:
        stored = msgspec.json.decode(_read(), type=_Stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CommandFailure("the standard input is no JSON object with a ServerURL") from None
    server, source = _source(stored.server, environ)
    if not stored.username:
        raise CommandFailure(_NO_USERNAME)
    if source is None or stored.username != _USERNAME:
        raise CommandFailure(
            f"{NAME} makes its own passwords and stores none: sign in by 'entrepot login', or "
            f"take {server} out of credHelpers in the client's configuration"
        )
    return ""


def _erase(environ: Mapping[str, str]) -> str:
    """Forget the container password; the sign-in of ``entrepot login`` stays."""
    _, source = _source(_read().decode(errors="replace").strip(), environ)
    if source is not None:
        forget_password(source.key, environ)
    return ""


def _list(environ: Mapping[str, str]) -> str:
    return _json(dict.fromkeys(list_hosts(environ), _USERNAME))


def _version(_environ: Mapping[str, str]) -> str:
    from importlib import metadata  # noqa: PLC0415 - takes longer than all the rest

    return f"{NAME} (entrepot) {metadata.version('entrepot')}\n"


def _source(server: str, environ: Mapping[str, str]) -> tuple[str, PasswordSource | None]:
    """Return `server`, and the source of passwords for it, or None if there is none.

    Raise `CommandFailure` if `server` is empty.
    """
    if not server:
        raise CommandFailure(_NO_SERVER)
    return server, find_source(server, environ)


def _read() -> bytes:
    return sys.stdin.buffer.read(_MAX_INPUT)


def _json(value: object) -> str:
    return f"{msgspec.json.encode(value).decode()}\n"


if __name__ == "__main__":
    sys.exit(main())
