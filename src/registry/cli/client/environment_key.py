"""Sign in by the access key in the environment: a program needs neither a file nor ``login``.

``ENTREPOT_ACCESS_KEY_ID`` with ``ENTREPOT_SECRET_ACCESS_KEY``, or with
``ENTREPOT_SECRET_ACCESS_KEY_FILE``, the name of a file that holds the secret. The secret is sent to
the registry of ``ENTREPOT_REGISTRY`` and to no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.command_failures import CommandFailure, Misuse
from cloudcore.commands.prompts import is_sent_in_the_clear
from registry.cli.client.sign_in import post_form
from registry.cli.client.transport import Transport, base_url

_ID: Final = "ENTREPOT_ACCESS_KEY_ID"
_SECRET: Final = "ENTREPOT_SECRET_ACCESS_KEY"  # noqa: S105 - the name of a variable
_FILE: Final = "ENTREPOT_SECRET_ACCESS_KEY_FILE"
_INSECURE: Final = "ENTREPOT_INSECURE_HTTP"
_REGISTRY: Final = "ENTREPOT_REGISTRY"
_TOKEN_SECONDS: Final = 900
"""The shortest the registry allows: a command takes seconds."""


class EnvironmentKey(NamedTuple):
    """An access key, and the only registry that may see it."""

    url: str
    access_key_id: str
    secret: str


def find_key(environ: Mapping[str, str], url: str | None = None) -> EnvironmentKey | None:
    """Return the access key of the environment; None if there is none, or none for `url`.

    Raise `Misuse` if the variables are incomplete, or the secret would be sent over plain HTTP;
    `CommandFailure` if the file of the secret cannot be read.
    """
    access_key_id = environ.get(_ID)
    if not access_key_id:
        return None
    named = environ.get(_REGISTRY)
    if not named:
        if url is not None:  # another registry, which `entrepot login` may know
            return None
        raise Misuse(f"{_ID} is set: set {_REGISTRY} too, the URL of the registry the key is of")
    own = base_url(named)
    if url is not None and url != own:
        return None
    if is_sent_in_the_clear(own) and environ.get(_INSECURE) != "1":
        raise Misuse(
            f"{own} is plain HTTP: anybody on the way to it could read the secret access key; "
            f"use its https:// URL, or accept that with {_INSECURE}=1"
        )
    return EnvironmentKey(own, access_key_id, _secret(environ))


def _secret(environ: Mapping[str, str]) -> str:
    secret, file = environ.get(_SECRET), environ.get(_FILE)
    if secret:
        return secret
    if not file:
        raise Misuse(f"{_ID} is set: set {_SECRET} too, or {_FILE}")
    try:
        return Path(file).read_text(encoding="ascii").strip()
    except OSError as error:
        raise CommandFailure(f"{_FILE}: cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailure(f"{_FILE}: {file} does not hold a secret access key") from None


class KeyTokens:
    """Access tokens of the key, each for this process alone."""

    def __init__(self, transport: Transport, key: EnvironmentKey) -> None:
        self._transport = transport
        self._key = key
        self._token: str | None = None

    def token(self) -> str:
        """Return a token.

        Raise `RequestRefused` if the registry does not take the key, `CommandFailure` if the
        registry cannot be reached.
        """
        return self._token or self.renewed_token(None)

    def renewed_token(self, _refused: str | None) -> str:
        """Return a new token; raise what `token` raises."""
        form = {"grant_type": "client_credentials", "duration_seconds": str(_TOKEN_SECONDS)}
        pair = (self._key.access_key_id, self._key.secret)
        answer = post_form(self._transport, "/v1/oauth/token", form, pair)
        self._token = str(answer["access_token"])
        return self._token

    def advice(self) -> str:
        """Return no advice: a service account has the rights of its policies."""
        return ""
