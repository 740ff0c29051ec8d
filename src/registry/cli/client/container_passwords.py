"""Get passwords for container clients from the registry, and reuse them until they are old.

A password (``POST /v1/authorization-token``) lasts twelve hours at most and grants nothing by
itself. It is stored in a file that only its owner can read, beside the credentials of ``entrepot
login``, and becomes invalid with the sign-in or access key that made it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from cloudcore.command_failures import CommandFailure
from registry.cli.client.api import ApiClient, client_for
from registry.cli.client.credentials import credentials_path, load, load_file, locked_file
from registry.cli.client.sign_in import find_key

PATH: Final = "/v1/authorization-token"
_FILE: Final = "container-passwords.json"
_ELSEWHERE: Final = 4
"""The result of `_distance` for a source that does not make passwords for the server."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class ContainerPassword(msgspec.Struct, frozen=True):
    """A password with which a container client logs in."""

    username: str
    password: str
    registry: str
    """The host to log in to."""
    issued_at: float
    """Seconds since the epoch, by this machine's clock."""
    expires_at: float

    @property
    def renew_at(self) -> float:
        """Return when to make a new password (as `expires_at`): early, as a push may take hours."""
        return self.expires_at - (self.expires_at - self.issued_at) / 4


class PasswordSource(NamedTuple):
    """A sign-in or an access key that can make container passwords."""

    client: ApiClient
    key: str
    """The key of the source's password in the file."""
    began_at: float
    """When the sign-in began, in seconds since the epoch; older passwords ended with an earlier
    sign-in."""


def new_password(client: ApiClient) -> ContainerPassword:
    """Make a password; raise `CommandFailure` if the registry refuses, or cannot be reached."""
    now = time.time()
    answer: Mapping[str, Any] = client.call("POST", PATH)
    ends_at, issued_at = (
        datetime.fromisoformat(answer[each]).timestamp() for each in ("expires_at", "issued_at")
    )
    return ContainerPassword(
        answer["username"], answer["password"], answer["registry"], now, now + ends_at - issued_at
    )


def find_source(server: str, environ: Mapping[str, str]) -> PasswordSource | None:
    """Return the source of passwords for a server, or None if there is none.

    `server` is as a client names it: a URL, or a host with its port if it has one. Of several
    sources, the nearest one wins: the same URL, then the same host (HTTPS before HTTP), then the
    source whose stored password is for that host.

    Raise `CommandFailure` if the access key in the environment is incomplete, or a file is damaged.
    """
    try:
        asked = urlsplit(server if "://" in server else f"//{server}")
    except ValueError:
        return None
    if not asked.netloc:
        return None
    stored = _load(environ)
    rated = [(_distance(each, asked, stored.get(each.key)), each) for each in _sources(environ)]
    distance, found = min(rated, key=itemgetter(0), default=(_ELSEWHERE, None))
    return None if distance == _ELSEWHERE else found


def list_hosts(environ: Mapping[str, str]) -> list[str]:
    """Return the hosts for which a sign-in or an access key is available."""
    return [source.client.host for source in _sources(environ)]


def _sources(environ: Mapping[str, str]) -> list[PasswordSource]:
    path = credentials_path(environ)
    key = find_key(environ) if environ.get("ENTREPOT_REGISTRY") else None
    found = []
    if key is not None:
        key_name = f"{key.url} {key.access_key_id}"
        found.append(PasswordSource(client_for(key.url, environ), key_name, 0))
    for url, credential in load(path).items():
        if key is None or url != key.url:
            found.append(PasswordSource(client_for(url, environ), url, credential.signed_in_at))
    return found


def _distance(source: PasswordSource, asked: SplitResult, stored: ContainerPassword | None) -> int:
    """Rate how well a source fits the requested server: 0 is best, `_ELSEWHERE` does not fit."""
    own = urlsplit(source.client.url)
    hosts = {_plain(host, own.scheme) for host in (own.netloc, source.client.host)}
    if _plain(asked.netloc, own.scheme) in hosts:
        if asked.scheme == own.scheme:
            return 0
        return 1 if own.scheme == "https" else 2
    if stored is not None and stored.registry.lower() == asked.netloc.lower():
        return 3
    return _ELSEWHERE


def _plain(host: str, scheme: str) -> str:
    """Return a host in lower case, without the scheme's default port."""
    default = _DEFAULT_PORTS[scheme]
    return host.lower().removesuffix(f":{default}")


def current_password(source: PasswordSource, environ: Mapping[str, str]) -> ContainerPassword:
    """Return the stored password; if it is missing or old, make a new one.

    Raise `CommandFailure` if the registry refuses, or cannot be reached.
    """
    stored = _load(environ).get(source.key)
    if stored is not None and source.began_at <= stored.issued_at <= time.time() < stored.renew_at:
        return stored
    made = new_password(source.client)
    _store(source.key, made, environ)
    return made


def forget_password(key: str, environ: Mapping[str, str]) -> None:
    """Delete the stored password of a source; `key` is the source's `PasswordSource.key`."""
    _store(key, None, environ)


def _store(key: str, made: ContainerPassword | None, environ: Mapping[str, str]) -> None:
    """Store a password, or delete it for None; delete expired ones too. Ignore failures."""
    with (
        suppress(OSError, CommandFailure),
        locked_file(_path(environ), ContainerPassword) as stored,
    ):
        for old in [old for old, each in stored.items() if each.expires_at <= time.time()]:
            del stored[old]
        stored.pop(key, None)
        if made is not None:
            stored[key] = made


def _load(environ: Mapping[str, str]) -> dict[str, ContainerPassword]:
    """Return the stored passwords by source; empty if the file is missing or damaged."""
    try:
        return load_file(_path(environ), ContainerPassword)
    except (OSError, CommandFailure):
        return {}


def _path(environ: Mapping[str, str]) -> Path:
    return credentials_path(environ).with_name(_FILE)
