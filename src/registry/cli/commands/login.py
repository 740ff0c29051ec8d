"""Sign in and out: as a person in a browser, or by an access key."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from cloudcore.command_failures import FAILED, CommandFailure, Missing, Misuse, RequestRefused
from cloudcore.commands.parser import Verbs
from cloudcore.commands.prompts import check_plain_http, read_secret
from cloudcore.commands.records import printable, write_now
from registry.cli.client.api import ApiClient
from registry.cli.client.container_passwords import forget_password, new_password
from registry.cli.client.credentials import Credential, changing, credentials_path
from registry.cli.client.person_sign_in import choose_role, sign_in_person
from registry.cli.client.sign_in import (
    SignIn,
    assume_role,
    choose_registry,
    post_form,
    token_of,
    transport_to,
)
from registry.cli.client.transport import Transport
from registry.cli.commands import container_login
from registry.cli.commands.container_login import log_in

_KEY_PAIR_SECONDS: Final = 12 * 3600
"""The longest lifetime that the registry allows: the secret is not stored to renew the token."""


def add_parsers(commands: Verbs) -> None:
    """Add ``login``, ``docker-login`` and ``logout``."""
    login = commands.add_parser("login", help="sign in to a registry")
    login.add_argument("url", help="base URL of the registry, such as https://registry.example.com")
    login.add_argument(
        "--access-key-id", metavar="ID", help="sign in by key pair; the secret is asked for"
    )
    role = login.add_mutually_exclusive_group()
    role.add_argument(
        "--role",
        metavar="ROLE",
        help="act in this role (id, CRN or name); a person's only role needs no option",
    )
    role.add_argument("--no-role", action="store_true", help="act as the person, in no account")
    login.add_argument(
        "--no-browser", action="store_true", help="open no browser here; paste the code of the page"
    )
    login.add_argument(
        "--insecure-http", action="store_true", help="send secrets over plain HTTP to another host"
    )
    login.add_argument("--docker", action="store_true", help="also sign a container client in")
    container_login.add_client(login)
    login.set_defaults(run=sign_in)
    logout = commands.add_parser("logout", help="end a sign-in and forget it")
    logout.add_argument("registry", nargs="?", metavar="url", help="base URL of the registry")
    logout.set_defaults(run=sign_out)
    container_login.add_parsers(commands)


def sign_in(options: argparse.Namespace) -> None:
    """Sign in and store the credential; with ``--docker``, log a container client in too."""
    transport = Transport(options.url)
    if options.docker and options.no_role:
        raise Misuse("a person signs a container client in by a role: leave --no-role out")
    check_plain_http(transport.url, is_accepted=options.insecure_http)
    try:
        transport.find_own_urls()
        if options.access_key_id:
            credential = _by_key_pair(transport, options.access_key_id)
        else:
            credential = sign_in_person(transport, with_browser=not options.no_browser)
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise Missing(
            f"there is no sign-in at {transport.url}; check the URL, and mind that 'entrepot dev' "
            "has none: 'entrepot init' and 'entrepot serve' make a registry that has"
        ) from None
    credential = msgspec.structs.replace(
        credential, signed_in_at=time.time(), own_urls=dict(transport.own_urls)
    )
    path = credentials_path(os.environ)
    replaced = _store(path, transport.url, credential)
    if replaced is not None:
        with suppress(CommandFailure):  # the replaced tokens expire
            _end(transport, replaced)
    write_now(f"Signed in to {transport.url}; the credential is in {path}.\n")
    credential = _with_role(options, transport, credential)
    _store(path, transport.url, credential)
    sys.stdout.flush()
    if options.docker:
        _sign_client_in(options, transport, credential)


def _with_role(
    options: argparse.Namespace, transport: Transport, credential: Credential
) -> Credential:
    """Assume the role in ``--role``, else the person's only role or the one picked.

    Return the new credential; return `credential` itself if no role is picked, and for a service
    account without ``--role``.
    """
    role, shown, source = options.role, printable(options.role or ""), credential.token.access_token
    if role is None:
        if credential.refresh_token is None or options.no_role:  # a program has its own rights
            return credential
        person = SignIn(transport, credentials_path(os.environ), in_role=False)
        found = choose_role(ApiClient(transport, person))
        if found is None:
            return credential
        role, shown = found.crn, found.shown
    try:
        token = assume_role(transport, source, role)
    except RequestRefused as error:
        if error.status != 403:
            raise
        raise RequestRefused(
            f"{error}. You are signed in, but not in the role {shown}: "
            "an administrator of its account can change its trust policy",
            error.status,
            error.code,
        ) from None
    sys.stdout.write(f"Commands act in the role {shown}.\n")
    return msgspec.structs.replace(credential, role=role, role_token=token)


def _sign_client_in(
    options: argparse.Namespace, transport: Transport, credential: Credential
) -> None:
    if credential.acting is None or (credential.refresh_token and credential.role is None):
        raise Misuse("a person signs a container client in by a role: add --role ROLE")
    client = ApiClient(transport, SignIn(transport, credentials_path(os.environ)))
    made = new_password(client)
    log_in(transport.url, options.client, made.username, made.password, made.registry)


def sign_out(options: argparse.Namespace) -> int:
    """Delete the stored credential, and end the sign-in at the registry; return the exit status.

    If the registry cannot end the sign-in, the credential is deleted all the same, and the status
    is `FAILED`.
    """
    path = credentials_path(os.environ)
    transport = transport_to(choose_registry(options.registry, os.environ, path), path)
    with changing(path) as credentials:
        credential = credentials.pop(transport.url, None)
    forget_password(transport.url, os.environ)
    if credential is None:
        sys.stdout.write(f"Not signed in to {transport.url}.\n")
        return 0
    try:
        _end(transport, credential)
    except CommandFailure as error:
        sys.stderr.write(
            f"entrepot: forgotten here, but not ended at the registry: {printable(str(error))}\n"
        )
        return FAILED
    sys.stdout.write(f"Signed out of {transport.url}.\n")
    return 0


def _store(path: Path, url: str, credential: Credential) -> Credential | None:
    """Store a credential; return the one it replaces, or None."""
    try:
        with changing(path) as credentials:
            replaced = credentials.get(url)
            credentials[url] = credential
    except OSError as error:
        raise CommandFailure(
            f"signed in, but cannot write {path}: {error.strerror}; "
            "ENTREPOT_CREDENTIALS may name another file"
        ) from None
    return replaced


def _end(transport: Transport, credential: Credential) -> None:
    """Revoke the tokens of a sign-in at the registry (RFC 7009)."""
    tokens = [credential.refresh_token or credential.token.access_token]
    if credential.role_token is not None:
        tokens.insert(0, credential.role_token.access_token)
    for token in tokens:
        post_form(transport, "/v1/oauth/revoke", {"token": token})


def _by_key_pair(transport: Transport, access_key_id: str) -> Credential:
    form = {"grant_type": "client_credentials", "duration_seconds": str(_KEY_PAIR_SECONDS)}
    pair = (access_key_id, read_secret("Secret access key: ", "secret access key", None))
    return Credential(token_of(post_form(transport, "/v1/oauth/token", form, pair)))
