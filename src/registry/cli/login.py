"""Sign in and out: by a person in a browser (PKCE, out of band), or by an access key."""

from __future__ import annotations

import argparse
import base64
import getpass
import hashlib
import os
import secrets
import subprocess
import sys
from urllib.parse import urlencode

from registry.cli.api import Api, ApiError
from registry.cli.credentials import Credential, credentials_path, load, store

OUT_OF_BAND = "urn:ietf:wg:oauth:2.0:oob"
CLIENT = "cli"


def sign_in(options: argparse.Namespace) -> int:
    """Sign in, keep the credential, and sign a container client in when asked."""
    api = Api(options.url)
    if options.access_key_id:
        credential = _by_key_pair(api, options.access_key_id)
    else:
        credential = _by_person(api)
    path = credentials_path(os.environ)
    store(path, load(path) | {api.url: credential})
    sys.stdout.write(f"Signed in to {api.url}; the credential is in {path}.\n")
    access_token = credential.access_token
    if options.role:
        answer = api.post_json("/v1/assume-role", {"role": options.role}, access_token)
        access_token = answer["access_token"]
    if options.docker:
        return _sign_client_in(api, options.client, access_token)
    return 0


def sign_out(options: argparse.Namespace) -> int:
    """End a sign-in at the registry, and forget it here whatever the registry says."""
    api = Api(options.url)
    path = credentials_path(os.environ)
    credentials = load(path)
    credential = credentials.pop(api.url, None)
    if credential is None:
        sys.stdout.write(f"Not signed in to {api.url}.\n")
        return 0
    store(path, credentials)
    try:
        token = credential.refresh_token or credential.access_token
        api.post_form("/v1/oauth/revoke", {"token": token})
    except ApiError as error:
        sys.stderr.write(f"entrepot: forgotten here, but not ended at the registry: {error}\n")
        return 1
    sys.stdout.write(f"Signed out of {api.url}.\n")
    return 0


def _by_key_pair(api: Api, access_key_id: str) -> Credential:
    secret = _secret("Secret access key: ")
    answer = api.post_form(
        "/v1/oauth/token", {"grant_type": "client_credentials"}, (access_key_id, secret)
    )
    return Credential(answer["access_token"])


def _by_person(api: Api) -> Credential:
    """Show the page to open, take the code it shows, and change it for tokens (RFC 7636)."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = urlencode(
        {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": OUT_OF_BAND,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "state": secrets.token_urlsafe(16),
        }
    )
    sys.stdout.write("Open this page, sign in, and copy the code it shows:\n\n")
    sys.stdout.write(f"  {api.url}/v1/oauth/authorize?{query}\n\n")
    sys.stdout.flush()
    answer = api.post_form(
        "/v1/oauth/token",
        {
            "grant_type": "authorization_code",
            "code": _secret("Code: "),
            "code_verifier": verifier,
            "client_id": CLIENT,
            "redirect_uri": OUT_OF_BAND,
        },
    )
    return Credential(answer["access_token"], answer.get("refresh_token"))


def _sign_client_in(api: Api, program: str, access_token: str) -> int:
    """Give a container client a login of its own, by its standard input only."""
    login = api.post_json("/v1/authorization-token", {}, access_token)
    command = [program, "login", "--username", login["username"], "--password-stdin"]
    try:
        ended = subprocess.run(  # noqa: S603 - the program the person named
            [*command, login["registry"]], input=login["password"], text=True, check=False
        )
    except FileNotFoundError:
        raise ApiError(f"{program} is not installed") from None
    return ended.returncode


def _secret(prompt: str) -> str:
    """Ask for a secret on the terminal, or read one line of the standard input."""
    if sys.stdin.isatty():
        return getpass.getpass(prompt).strip()
    return sys.stdin.readline().strip()
