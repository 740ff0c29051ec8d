"""Choose the registry, and get valid tokens for it by a stored sign-in or an access key.

Tokens are not verified here: their claims are only shown to the person.

A program needs neither a file nor ``login``: its key is in ``ENTREPOT_ACCESS_KEY_ID``, and the
secret in ``ENTREPOT_SECRET_ACCESS_KEY`` or in the file that ``ENTREPOT_SECRET_ACCESS_KEY_FILE``
names. The key is sent only to the registry in ``ENTREPOT_REGISTRY``.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from cloudcore import base64url
from cloudcore.command_failures import CommandFailure, Misuse, NotSignedIn, RequestRefused
from cloudcore.commands.client import TokenClaims
from cloudcore.commands.prompts import is_sent_in_the_clear
from registry.cli.client.credentials import ApiToken, Credential, changing, load
from registry.cli.client.transport import TIMEOUT_SECONDS, HttpRequest, Transport, base_url

CLIENT: Final = "cli"
_EARLY_SECONDS: Final = 30
"""A token that expires sooner is renewed before it is used."""


class SignIn:
    """The sign-in to one registry, stored in the credentials file.

    Its tokens act in the assumed role; with `in_role=False`, or if none is assumed, as the person
    or program that signed in.
    """

    def __init__(self, transport: Transport, path: Path, *, in_role: bool = True) -> None:
        self._transport = transport
        self._path = path
        self._in_role = in_role

    def token(self) -> str:
        """Return an access token, renewed if it has expired.

        Raise `NotSignedIn` if only a new sign-in can get one; `CommandFailure` if the registry does
        not renew it, or cannot be reached.
        """
        credential = load(self._path).get(self._transport.url)
        acting = None if credential is None else self._acting(credential)
        return acting.access_token if acting and _is_live(acting) else self.renewed_token(None)

    def renewed_token(self, refused: str | None) -> str:
        """Return a token other than `refused`; raise what `token` raises.

        Of concurrent commands only one renews, as a refresh token can be used only once.
        """
        with changing(self._path) as credentials:
            credential = credentials.get(self._transport.url)
            if credential is None:
                raise NotSignedIn(f"not signed in to {self._transport.url}: {self._advice}")
            acting = self._acting(credential)
            if acting and _is_live(acting) and acting.access_token != refused:
                return acting.access_token
            return self._renew(credentials, credential).access_token

    def advice(self) -> str:
        """Return advice to assume a role, if a person acts without one; else an empty string."""
        if not self._in_role:
            return ""
        credential = load(self._path).get(self._transport.url)
        if credential is None or credential.refresh_token is None or credential.role is not None:
            return ""
        return (
            "a person acts in an account by a role: "
            f"run 'entrepot login {self._transport.url} --role ROLE'"
        )

    def _acting(self, credential: Credential) -> ApiToken | None:
        return credential.acting if self._in_role else credential.token

    def _renew(self, stored: dict[str, Credential], credential: Credential) -> ApiToken:
        """Return a new token to send; put each new token into `stored` as soon as it arrives."""
        source = credential.token
        if self._in_role and credential.role is not None and _is_live(source):
            try:
                return self._act(stored, credential)
            except RequestRefused as error:
                if error.status != 401:
                    raise
        # From here on the old refresh token is spent, so the new one is stored at once.
        credential = stored[self._transport.url] = self._refreshed(credential)
        return self._act(stored, credential)

    def _act(self, stored: dict[str, Credential], credential: Credential) -> ApiToken:
        if not self._in_role or credential.role is None:
            return credential.token
        token = assume_role(self._transport, credential.token.access_token, credential.role)
        stored[self._transport.url] = msgspec.structs.replace(credential, role_token=token)
        return token

    def _refreshed(self, credential: Credential) -> Credential:
        over = NotSignedIn(f"the sign-in to {self._transport.url} is over: {self._advice}")
        if credential.refresh_token is None:
            raise over
        form = {
            "grant_type": "refresh_token",
            "refresh_token": credential.refresh_token,
            "client_id": CLIENT,
        }
        try:
            answer = post_form(self._transport, "/v1/oauth/token", form)
        except RequestRefused as error:
            raise (over if error.code == "invalid_grant" else error) from None
        return msgspec.structs.replace(
            credential, token=token_of(answer), refresh_token=answer.get("refresh_token")
        )

    @property
    def _advice(self) -> str:
        return f"run 'entrepot login {self._transport.url}'"


def choose_registry(given: str | None, environ: Mapping[str, str], path: Path) -> str:
    """Return the registry's URL: `given`, else from the environment, else from the only sign-in.

    Raise `Misuse` if there are several sign-ins, or the URL is malformed; `NotSignedIn` if there is
    no sign-in.
    """
    named = given or environ.get("ENTREPOT_REGISTRY")
    if named:
        return base_url(named)
    urls = sorted(load(path))
    if len(urls) > 1:
        raise Misuse(f"name one of the registries you are signed in to: {', '.join(urls)}")
    if not urls:
        raise NotSignedIn("not signed in: run 'entrepot login URL'")
    return urls[0]


def transport_to(url: str, path: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> Transport:
    """Return the transport to a registry; its stored sign-in has the families' base URLs."""
    stored = load(path).get(base_url(url))
    own_urls = None if stored is None else stored.own_urls
    return Transport(url, timeout_seconds=timeout_seconds, own_urls=own_urls)


def assume_role(transport: Transport, access_token: str, role: str) -> ApiToken:
    """Assume a role with an access token; return the role's token."""
    headers = {"Content-Type": "application/json", **bearer(access_token)}
    body = msgspec.json.encode({"role": role})
    return token_of(transport.send(HttpRequest("POST", "/v1/assume-role", headers, body)))


def post_form(
    transport: Transport,
    path: str,
    fields: Mapping[str, str],
    basic: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Post a form to an OAuth endpoint; return the JSON. `basic` is (user name, password)."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if basic is not None:
        pair = base64.b64encode(f"{basic[0]}:{basic[1]}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    return transport.send(HttpRequest("POST", path, headers, urlencode(fields).encode()))


def bearer(access_token: str) -> dict[str, str]:
    """Return the ``Authorization`` header of a token."""
    return {"Authorization": f"Bearer {access_token}"}


def token_of(answer: Mapping[str, Any]) -> ApiToken:
    """Return the access token in a token response; its expiry is by this machine's clock."""
    return ApiToken(answer["access_token"], int(time.time()) + answer["expires_in"])


def _is_live(token: ApiToken) -> bool:
    return time.time() < token.expires_at - _EARLY_SECONDS


def claims_of(token: str) -> TokenClaims:
    """Return the claims of a token (RFC 7519 §3).

    Raise `CommandFailure` if the token is not one that this registry issues.
    """
    _, _, rest = token.partition(".")
    payload, _, _ = rest.partition(".")
    try:
        text = base64url.decode(payload)
        return msgspec.json.decode(text, type=TokenClaims)
    except (ValueError, msgspec.DecodeError):
        raise CommandFailure(
            "the stored token cannot be read; sign in again with 'entrepot login'"
        ) from None


_ID: Final = "ENTREPOT_ACCESS_KEY_ID"
_SECRET: Final = "ENTREPOT_SECRET_ACCESS_KEY"  # noqa: S105 - the name of a variable
_FILE: Final = "ENTREPOT_SECRET_ACCESS_KEY_FILE"
_INSECURE: Final = "ENTREPOT_INSECURE_HTTP"
_REGISTRY: Final = "ENTREPOT_REGISTRY"
_TOKEN_SECONDS: Final = 900
"""The shortest lifetime that the registry allows: a command takes seconds."""


class EnvironmentKey(NamedTuple):
    """An access key, and the only registry that may see it."""

    url: str
    access_key_id: str
    secret: str


def find_key(environ: Mapping[str, str], url: str | None = None) -> EnvironmentKey | None:
    """Return the access key in the environment; None if there is none, or it is not for `url`.

    Raise `Misuse` if the variables are incomplete, or the secret would be sent over plain HTTP;
    `CommandFailure` if the file of the secret cannot be read.
    """
    access_key_id = environ.get(_ID)
    if not access_key_id:
        return None
    named = environ.get(_REGISTRY)
    if not named:
        if url is not None:  # `entrepot login` may know this registry
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
    """Gets access tokens by an access key, and keeps them in memory only."""

    def __init__(self, transport: Transport, key: EnvironmentKey) -> None:
        self._transport = transport
        self._key = key
        self._token: str | None = None

    def token(self) -> str:
        """Return an access token.

        Raise `RequestRefused` if the registry refuses the key, `CommandFailure` if the registry
        cannot be reached.
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
        """Return an empty string: a service account needs no role to act in its account."""
        return ""
