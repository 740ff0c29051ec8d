"""Log container clients in: the login commands that take a password on the standard input."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from registry.cli.container_passwords import ContainerPassword
from registry.cli.failure import CommandFailure
from registry.cli.output import printable


class _LoginCommand(NamedTuple):
    """How a program is told to log in; the host follows."""

    words: tuple[str, ...] = ("login",)
    username: str = "--username"
    password: str = "--password-stdin"  # noqa: S105 - an option
    plain_http: tuple[str, ...] = ()
    """Options for a registry without TLS; docker and crane need none on loopback."""
    before_plain_http: tuple[str, ...] = ()
    """What is run first for a registry without TLS; the host follows."""


_DOCKER: Final = _LoginCommand()
_CONTAINERS: Final = _LoginCommand(plain_http=("--tls-verify=false",))
_COMMANDS: Final[Mapping[str, _LoginCommand]] = {
    "docker": _DOCKER,
    "nerdctl": _DOCKER,
    "podman": _CONTAINERS,
    "buildah": _CONTAINERS,
    "skopeo": _CONTAINERS,
    "oras": _LoginCommand(plain_http=("--plain-http",)),
    "crane": _LoginCommand(("auth", "login")),
    "helm": _LoginCommand(("registry", "login"), plain_http=("--plain-http",)),
    "regctl": _LoginCommand(
        ("registry", "login"),
        "--user",
        "--pass-stdin",
        before_plain_http=("registry", "set", "--tls", "disabled"),
    ),
}
CLIENTS: Final = tuple(_COMMANDS)


def login_commands(url: str, program: str, username: str, host: str) -> list[list[str]]:
    """Return the commands that log a client in; an unknown one is told as docker is.

    The last one takes the password on its standard input.
    """
    how = _COMMANDS.get(Path(program).name, _DOCKER)
    is_plain = url.startswith("http://")
    before = [[program, *how.before_plain_http, host]] if is_plain and how.before_plain_http else []
    options = how.plain_http if is_plain else ()
    return [*before, [program, *how.words, how.username, username, how.password, *options, host]]


def log_in(url: str, program: str, login: ContainerPassword) -> None:
    """Log a client in to the registry at `url`; the password goes to its standard input only.

    Raises:
        CommandFailure: the client cannot be run, or fails.

    """
    *before, last = login_commands(url, program, login.username, login.registry)
    try:
        for command in before:
            _run(program, command, "")
        _run(program, last, login.password)
    except OSError as error:
        if Path(program).name not in _COMMANDS:
            raise CommandFailure(
                f"cannot run {printable(program)}: {error.strerror}; name a container client with "
                f"--client, such as {', '.join(CLIENTS)}"
            ) from None
        by_hand = f"entrepot docker-login --registry {shlex.quote(url)} --print-password"
        lines = [*map(shlex.join, before), f"{by_hand} | {shlex.join(last)}"]
        raise CommandFailure(
            f"cannot run {program}: {error.strerror}; name another client with --client, "
            f"or run where it is: {'; '.join(lines)}"
        ) from None


def _run(program: str, command: list[str], given: str) -> None:
    ended = subprocess.run(  # noqa: S603 - the program the person named
        command, input=given, text=True, check=False
    )
    if ended.returncode != 0:
        raise CommandFailure(f"{program} did not sign in; this command is signed in nevertheless")
