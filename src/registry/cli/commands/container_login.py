"""``entrepot docker-login``: log container clients in, or print a Kubernetes pull secret."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from cloudcore.clock import microseconds
from cloudcore.command_failures import CommandFailure, Misuse
from cloudcore.commands.parser import Verbs, add_output, add_registry
from cloudcore.commands.records import printable, utc_text, write_now, write_record
from cloudcore.files import replace_file
from registry.cli.client.api import ApiClient, StoredSignIn
from registry.cli.client.container_passwords import (
    ContainerPassword,
    current_password,
    find_source,
    new_password,
)

_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:[.]{_LABEL})*")
HELPER: Final = "entrepot"
_PROGRAM: Final = f"docker-credential-{HELPER}"


def pull_secret(name: str, namespace: str | None, login: ContainerPassword) -> dict[str, Any]:
    """Return the manifest of a Kubernetes Secret with which images are pulled.

    Raise `Misuse` if Kubernetes does not allow the name or the namespace (RFC 1123 §2.1).
    """
    if not _NAME.fullmatch(name):
        raise Misuse(
            f"the name of a Secret is of a-z 0-9 - . and begins with the first, not {name!r}"
        )
    if namespace is not None and not _NAMESPACE.fullmatch(namespace):
        raise Misuse(f"a namespace is at most 63 of a-z 0-9 -, not {namespace!r}")
    pair = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    auth = {"username": login.username, "password": login.password, "auth": pair}
    config = msgspec.json.encode({"auths": {login.registry: auth}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name} | ({} if namespace is None else {"namespace": namespace}),
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(config).decode()},
    }


def yaml_of(manifest: Mapping[str, Any]) -> str:
    """Return a manifest as YAML; strings are quoted as in JSON, which YAML 1.2 includes."""
    lines = []
    for key, value in manifest.items():
        if isinstance(value, str):
            lines.append(f"{key}: {_quoted(value)}")
        else:
            lines.append(f"{key}:")
            lines += [f"  {name}: {_quoted(text)}" for name, text in value.items()]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of docker's ``config.json``, which the other clients read too."""
    folder = environ.get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path.home() / ".docker") / "config.json"


def add_helper(path: Path, hosts: Iterable[str]) -> bool:
    """Set our credential helper for hosts in docker's configuration; return False if unchanged.

    Other settings stay. The file is replaced atomically, and keeps its mode. Raise `CommandFailure`
    if the file is not such a configuration, or cannot be written.
    """
    target = path.resolve()  # so that a symbolic link stays a link
    config = _read(target)
    helpers = config.setdefault("credHelpers", {})
    if not isinstance(helpers, dict):
        raise CommandFailure(f"{path}: credHelpers is no JSON object; mend the file first")
    missing = [host for host in hosts if helpers.get(host) != HELPER]
    if not missing:
        return False
    helpers.update(dict.fromkeys(missing, HELPER))
    text = json.dumps(config, indent="\t", ensure_ascii=False)  # docker indents with tabs
    try:
        _replace(target, f"{text}\n")
    except OSError as error:
        raise CommandFailure(f"cannot write {path}: {error.strerror}") from None
    return True


def missing_program(environ: Mapping[str, str]) -> str:
    """Return the path of the helper if PATH does not contain it; else an empty string."""
    if shutil.which(_PROGRAM, path=environ.get("PATH")):
        return ""
    return str(Path(sys.executable).with_name(_PROGRAM))


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CommandFailure(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise CommandFailure(f"{path} holds no JSON object; mend the file first")
    return config


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    replace_file(path, text.encode(), mode)


_CLIENT: str = "docker"
_EXAMPLES = """\
examples:
  entrepot docker-login                       docker, for 12 hours
  entrepot docker-login --client podman
  entrepot docker-login --credential-helper   docker and others, for as long as you are signed in
  entrepot docker-login --print-password |
    crane auth login --username token --password-stdin registry.example.com
  entrepot docker-login --kubernetes-secret entrepot | kubectl apply -f -
"""


def add_parsers(commands: Verbs) -> None:
    """Add ``docker-login``."""
    words = "sign a container client in for 12 hours, without asking for a secret again"
    parser = commands.add_parser(
        "docker-login",
        help=words,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_registry(parser)
    add_output(parser)
    ways = parser.add_mutually_exclusive_group()
    add_client(ways)
    ways.add_argument(
        "--credential-helper",
        action="store_true",
        help="have clients ask docker-credential-entrepot for passwords (~/.docker/config.json)",
    )
    ways.add_argument("--print", action="store_true", help="print username and password")
    ways.add_argument(
        "--print-password",
        action="store_true",
        help="print the password alone; the username is 'token'",
    )
    ways.add_argument(
        "--kubernetes-secret", metavar="NAME", help="print a pull secret for 'kubectl apply -f -'"
    )
    parser.add_argument("--namespace", metavar="NAME", help="of the pull secret")
    parser.set_defaults(run=_run)


def add_client(parser: argparse._ActionsContainer) -> None:
    """Add ``--client``, the container client."""
    parser.add_argument(
        "--client",
        default=_CLIENT,
        metavar="PROGRAM",
        help=f"the container client ({_CLIENT}): {', '.join(CLIENTS)}, or another with their form",
    )


def _run(options: argparse.Namespace) -> None:
    if options.namespace is not None and options.kubernetes_secret is None:
        raise Misuse("--namespace is for --kubernetes-secret NAME")
    client = StoredSignIn(options).client(in_role=True)
    if options.credential_helper:
        _name_helper(client)
        return
    made = new_password(client)
    if options.print:
        write_record(_record(made), options.output)
    elif options.print_password:
        write_now(f"{made.password}\n")
    elif options.kubernetes_secret is not None:
        _print_secret(options, made)
    else:
        log_in(client.url, options.client, made.username, made.password, made.registry)


def _record(made: ContainerPassword) -> dict[str, Any]:
    return {
        "registry": made.registry,
        "username": made.username,
        "password": made.password,
        "expires_at": _expiry(made),
    }


def _print_secret(options: argparse.Namespace, made: ContainerPassword) -> None:
    manifest = pull_secret(options.kubernetes_secret, options.namespace, made)
    if options.output == "json":
        write_record(manifest, options.output)
    else:
        write_now(f"# Its password expires at {_expiry(made)}.\n{yaml_of(manifest)}")


def _expiry(made: ContainerPassword) -> str:
    return utc_text(microseconds(made.expires_at))


def _name_helper(client: ApiClient) -> None:
    """Check that the sign-in works, and set the credential helper for the registry's host."""
    source = find_source(client.url, os.environ)
    if source is None:
        raise CommandFailure(f"nothing makes passwords for {client.host}; sign in to it first")
    made = current_password(source, os.environ)
    path = config_path(os.environ)
    hosts = dict.fromkeys((client.host, made.registry))
    is_new = add_helper(path, hosts)
    words = "asks" if is_new else "asked before"
    write_now(f"{path} {words} docker-credential-entrepot for {', '.join(hosts)}.\n")
    if program := missing_program(os.environ):
        sys.stderr.write(
            "entrepot: warning: clients look for docker-credential-entrepot in PATH, where it is "
            f"not; put it there, such as by: sudo ln -s {program} /usr/local/bin/\n"
        )


class _LoginCommand(NamedTuple):
    """The arguments of a client program's login; the host follows them."""

    words: tuple[str, ...] = ("login",)
    username: str = "--username"
    password: str = "--password-stdin"  # noqa: S105 - an option
    plain_http: tuple[str, ...] = ()
    """Options for a registry without TLS; on loopback, docker and crane need none."""
    before_plain_http: tuple[str, ...] = ()
    """Arguments of a command to run first for a registry without TLS; the host follows them."""


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
    """Return the command lines that log a client in; for an unknown client, those of docker.

    The last command reads the password from standard input.
    """
    how = _COMMANDS.get(Path(program).name, _DOCKER)
    is_plain = url.startswith("http://")
    before = [[program, *how.before_plain_http, host]] if is_plain and how.before_plain_http else []
    options = how.plain_http if is_plain else ()
    return [*before, [program, *how.words, how.username, username, how.password, *options, host]]


def log_in(url: str, program: str, username: str, password: str, host: str) -> None:
    """Log a client in to a host of the registry at `url`.

    The password is passed only on the client's standard input. Raise `CommandFailure` if the client
    cannot be run, or fails.
    """
    *before, last = login_commands(url, program, username, host)
    try:
        for command in before:
            _run_client(program, command, "")
        _run_client(program, last, password)
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


def _run_client(program: str, command: list[str], given: str) -> None:
    ended = subprocess.run(  # noqa: S603 - the program the person named
        command, input=given, text=True, check=False
    )
    if ended.returncode != 0:
        raise CommandFailure(f"{program} did not sign in; this command is signed in nevertheless")
