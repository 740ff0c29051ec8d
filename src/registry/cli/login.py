"""Sign in and out: as a person in a browser (PKCE, out of band), or by an access key."""

from __future__ import annotations

import argparse
import base64
import getpass
import hashlib
import os
import secrets
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from registry.cli import container_login
from registry.cli.credentials import Credential, changing, credentials_path
from registry.cli.failure import FAILED, CommandFailure, Missing, Misuse
from registry.cli.options import Verbs
from registry.cli.output import printable
from registry.cli.sign_in import (
    CLIENT,
    assume_role,
    bearer,
    choose_registry,
    post_form,
    token_of,
)
from registry.cli.transport import RequestRefused, Transport

OUT_OF_BAND: Final = "urn:ietf:wg:oauth:2.0:oob"
_KEY_PAIR_SECONDS: Final = 12 * 3600
"""The longest the registry allows: the secret is not stored, so the token cannot be renewed."""


def add_parsers(commands: Verbs) -> None:
    """Add ``login``, ``docker-login`` and ``logout``."""
    login = commands.add_parser("login", help="sign in to a registry")
    login.add_argument("url", help="base URL of the registry, such as https://registry.example.com")
    login.add_argument(
        "--access-key-id", metavar="ID", help="sign in by key pair; the secret is asked for"
    )
    login.add_argument("--role", metavar="ROLE", help="act in this role (id, CRN or name)")
    login.add_argument("--docker", action="store_true", help="also sign a container client in")
    container_login.add_client(login)
    login.set_defaults(run=sign_in)
    logout = commands.add_parser("logout", help="end a sign-in and forget it")
    logout.add_argument("registry", nargs="?", metavar="url", help="base URL of the registry")
    logout.set_defaults(run=sign_out)
    container_login.add_parsers(commands)


def sign_in(options: argparse.Namespace) -> int:
    """Sign in, store the credential, and with ``--docker`` log a container client in."""
    transport = Transport(options.url)
    if options.docker and not (options.access_key_id or options.role):
        raise Misuse("a person signs a container client in by a role: add --role ROLE")
    try:
        if options.access_key_id:
            credential = _by_key_pair(transport, options.access_key_id)
        else:
            credential = _by_person(transport)
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise Missing(
            f"there is no sign-in at {transport.url}; check the URL, and mind that 'entrepot dev' "
            "has none: 'entrepot init' and 'entrepot serve' make a registry that has"
        ) from None
    path = credentials_path(os.environ)
    replaced = _keep(path, transport.url, credential)
    if replaced is not None:
        _end_quietly(transport, replaced)
    sys.stdout.write(f"Signed in to {transport.url}; the credential is in {path}.\n")
    if options.role:
        token = assume_role(transport, credential.token.access_token, options.role)
        credential = msgspec.structs.replace(credential, role=options.role, role_token=token)
        _keep(path, transport.url, credential)
        sys.stdout.write(f"Commands act in the role {printable(options.role)}.\n")
    sys.stdout.flush()
    if options.docker:
        assert credential.acting is not None
        headers = bearer(credential.acting.access_token)
        login = transport.send("POST", container_login.PATH, headers)
        container_login.give_login(transport.url, options.client, login)
    return 0


def sign_out(options: argparse.Namespace) -> int:
    """Delete a credential here in any case, and end the sign-in at the registry."""
    path = credentials_path(os.environ)
    transport = Transport(choose_registry(options.registry, os.environ, path))
    with changing(path) as credentials:
        credential = credentials.pop(transport.url, None)
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


def _keep(path: Path, url: str, credential: Credential) -> Credential | None:
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


def _end_quietly(transport: Transport, credential: Credential) -> None:
    """Revoke the tokens of a replaced sign-in; on failure do nothing, as they expire."""
    try:
        _end(transport, credential)
    except CommandFailure:
        return


def _by_key_pair(transport: Transport, access_key_id: str) -> Credential:
    form = {"grant_type": "client_credentials", "duration_seconds": str(_KEY_PAIR_SECONDS)}
    pair = (access_key_id, _secret("Secret access key: ", "secret access key"))
    return Credential(token_of(post_form(transport, "/v1/oauth/token", form, pair)))


def _by_person(transport: Transport) -> Credential:
    """Print the page to open, read the code it shows, and exchange it for tokens (RFC 7636).

    There is no ``state``, as there is no redirect to protect: the verifier, which leaves this
    process only together with the code, binds the code to it.
    """
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = urlencode(
        {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": OUT_OF_BAND,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
    )
    page = f"/v1/oauth/authorize?{query}"
    transport.fetch("GET", page, {"Accept": "text/html"})  # fails here if there is no such page
    sys.stdout.write("Open this page, sign in, and copy the code it shows:\n\n")
    sys.stdout.write(f"  {transport.url}{page}\n\n")
    sys.stdout.flush()
    form = {
        "grant_type": "authorization_code",
        "code": _secret("Code: ", "code"),
        "code_verifier": verifier,
        "client_id": CLIENT,
        "redirect_uri": OUT_OF_BAND,
    }
    answer = post_form(transport, "/v1/oauth/token", form)
    return Credential(token_of(answer), answer.get("refresh_token"))


def _secret(prompt: str, name: str) -> str:
    """Return a secret typed at the terminal, or one line of the standard input."""
    try:
        typed = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()
    except (EOFError, UnicodeDecodeError):
        typed = ""
    secret = typed.strip()
    if not secret:
        raise Misuse(f"no {name} was given; type it, or pipe it to the standard input")
    return secret
