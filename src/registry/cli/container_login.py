"""Log container clients in with a password of twelve hours that grants nothing by itself."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from registry.cli.api import open_client
from registry.cli.failure import CommandFailure
from registry.cli.options import Verbs, add_registry

PATH: Final = "/v1/authorization-token"
_NEEDS_HTTP_OPTION: Final = frozenset({"podman", "buildah", "skopeo"})
"""Clients that need an option for plain HTTP; docker uses it for loopback by itself."""


def add_parsers(commands: Verbs) -> None:
    """Add ``docker-login``."""
    words = "sign a container client in for 12 hours, without asking for a secret again"
    parser = commands.add_parser("docker-login", help=words)
    add_registry(parser)
    add_client(parser)
    parser.set_defaults(run=_sign_in)


def add_client(parser: argparse.ArgumentParser) -> None:
    """Add ``--client``, the container client."""
    parser.add_argument(
        "--client", default="docker", metavar="PROGRAM", help="the container client (docker)"
    )


def _sign_in(options: argparse.Namespace) -> int:
    client = open_client(options)
    give_login(client.url, options.client, client.call("POST", PATH))
    return 0


def give_login(url: str, program: str, login: Mapping[str, Any]) -> None:
    """Log a container client in; the password goes to its standard input only.

    Raises:
        CommandFailure: the client cannot be run, or fails.

    """
    command = [program, "login", "--username", login["username"], "--password-stdin"]
    if url.startswith("http://") and Path(program).name in _NEEDS_HTTP_OPTION:
        command.append("--tls-verify=false")
    try:
        ended = subprocess.run(  # noqa: S603 - the program the person named
            [*command, login["registry"]], input=login["password"], text=True, check=False
        )
    except OSError as error:
        raise CommandFailure(
            f"cannot run {program}: {error.strerror}; name another client with --client"
        ) from None
    if ended.returncode != 0:
        raise CommandFailure(f"{program} did not sign in; this command is signed in nevertheless")
