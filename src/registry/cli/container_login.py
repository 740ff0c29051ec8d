"""``entrepot docker-login``: log container clients in with the existing sign-in."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from typing import Any

from registry.cli.api import ApiClient, open_client
from registry.cli.container_clients import CLIENTS, log_in
from registry.cli.container_passwords import (
    ContainerPassword,
    current_password,
    find_source,
    new_password,
)
from registry.cli.docker_config import add_helper, config_path, missing_program
from registry.cli.failure import CommandFailure, Misuse
from registry.cli.options import Verbs, add_output, add_registry
from registry.cli.output import write_now, write_record
from registry.cli.pull_secret import pull_secret, yaml_of

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


def _run(options: argparse.Namespace) -> int:
    if options.namespace is not None and options.kubernetes_secret is None:
        raise Misuse("--namespace is for --kubernetes-secret NAME")
    client = open_client(options)
    if options.credential_helper:
        return _name_helper(client)
    made = new_password(client)
    if options.print:
        write_record(_record(made), options.output)
    elif options.print_password:
        write_now(f"{made.password}\n")
    elif options.kubernetes_secret is not None:
        _print_secret(options, made)
    else:
        log_in(client.url, options.client, made)
    return 0


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
    moment = datetime.fromtimestamp(made.expires_at, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _name_helper(client: ApiClient) -> int:
    """Try the sign-in, and name the helper for the registry's host."""
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
    return 0
