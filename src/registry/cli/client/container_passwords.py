"""Get passwords for container clients from the registry, and keep them until they are old.

A password (``POST /v1/authorization-token``) lasts twelve hours at most and grants nothing by
itself. It is kept in a file that only its owner can read, beside the credentials of
``entrepot login``, and ends with the sign-in or access key it was made by.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from cloudcore.command_failures import CommandFailure
from registry.cli.client.api import ApiClient, client_for
from registry.cli.client.credentials import changing_file, credentials_path, load, load_file
from registry.cli.client.environment_key import find_key

PATH: Final = "/v1/authorization-token"
_FILE: Final = "container-passwords.json"
_ELSEWHERE: Final = 4
"""Distance of a source that is of another host."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class ContainerPassword(msgspec.Struct, frozen=True):
    """What a container client logs in with."""

    username: str
    password: str
    registry: str
    """The host to log in to."""
    issued_at: float
    """Seconds since the epoch, by this machine's clock."""
    expires_at: float

    @property
    def renew_at(self) -> float:
        """Return from when on it is too old to begin with: a push may take hours."""
        return self.expires_at - (self.expires_at - self.issued_at) / 4


class Source(NamedTuple):
    """A sign-in or an access key that makes passwords."""

    client: ApiClient
    key: str
    """Under which its password is kept."""
    began_at: float
    """Passwords from before are of an earlier sign-in, and have ended with it."""


def new_password(client: ApiClient) -> ContainerPassword:
    """Make a password.

    Raises:
        CommandFailure: the registry refuses, or cannot be reached.

    """
    now = time.time()
    answer: Mapping[str, Any] = client.call("POST", PATH)
    seconds = _seconds(answer["expires_at"]) - _seconds(answer["issued_at"])
    return ContainerPassword(
        answer["username"], answer["password"], answer["registry"], now, now + seconds
    )


def find_source(server: str, environ: Mapping[str, str]) -> Source | None:
    """Return what makes passwords for a server; None if nothing does.

    `server` is what a client asks for: a URL, or a host with its port if it has one. Of several
    sources, the nearest one wins: that of the same URL, then one of the same host, by HTTPS first,
    then one whose registry calls itself by that host.

    Raises:
        CommandFailure: the access key in the environment is incomplete, or a file is damaged.

    """
    try:
        asked = urlsplit(server if "://" in server else f"//{server}")
    except ValueError:
        return None
    if not asked.netloc:
        return None
    kept = _load(environ)
    nearest, found = _ELSEWHERE, None
    for each in _sources(environ):
        distance = _distance(each, asked, kept.get(each.key))
        if distance < nearest:
            nearest, found = distance, each
    return found


def list_hosts(environ: Mapping[str, str]) -> list[str]:
    """Return the hosts for which there is a sign-in or an access key."""
    return [source.client.host for source in _sources(environ)]


def _sources(environ: Mapping[str, str]) -> list[Source]:
    path = credentials_path(environ)
    key = find_key(environ) if environ.get("ENTREPOT_REGISTRY") else None
    found = []
    if key is not None:
        kept_as = f"{key.url} {key.access_key_id}"
        found.append(Source(client_for(key.url, environ), kept_as, 0))
    for url, credential in load(path).items():
        if key is None or url != key.url:
            found.append(Source(client_for(url, environ), url, credential.signed_in_at))
    return found


def _distance(source: Source, asked: SplitResult, kept: ContainerPassword | None) -> int:
    """Return how far a source is from what is asked for: from 0 to `_ELSEWHERE`."""
    own = urlsplit(source.client.url)
    hosts = {_plain(host, own.scheme) for host in (own.netloc, source.client.host)}
    if _plain(asked.netloc, own.scheme) in hosts:
        if asked.scheme == own.scheme:
            return 0
        return 1 if own.scheme == "https" else 2
    if kept is not None and kept.registry.lower() == asked.netloc.lower():
        return 3
    return _ELSEWHERE


def _plain(host: str, scheme: str) -> str:
    """Return a host in lower case, without the default port of the scheme."""
    default = _DEFAULT_PORTS[scheme]
    return host.lower().removesuffix(f":{default}")


def current_password(source: Source, environ: Mapping[str, str]) -> ContainerPassword:
    """Return the password that is kept, or a new one if that is old.

    Raises:
        CommandFailure: the registry refuses, or cannot be reached.

    """
    kept = _load(environ).get(source.key)
    if kept is not None and source.began_at <= kept.issued_at <= time.time() < kept.renew_at:
        return kept
    made = new_password(source.client)
    _keep(source.key, made, environ)
    return made


def forget_password(key: str, environ: Mapping[str, str]) -> None:
    """Forget what is kept for a source's `key`, which of a sign-in is its URL."""
    _keep(key, None, environ)


def _keep(key: str, made: ContainerPassword | None, environ: Mapping[str, str]) -> None:
    """Keep a password, or none, and drop what has expired; where nothing can be written, do not."""
    try:
        with changing_file(_path(environ), ContainerPassword) as kept:
            for old in [old for old, each in kept.items() if each.expires_at <= time.time()]:
                del kept[old]
            kept.pop(key, None)
            if made is not None:
                kept[key] = made
    except (OSError, CommandFailure):
        return


def _load(environ: Mapping[str, str]) -> dict[str, ContainerPassword]:
    """Return the passwords that are kept; a damaged file holds none."""
    try:
        return load_file(_path(environ), ContainerPassword)
    except (OSError, CommandFailure):
        return {}


def _path(environ: Mapping[str, str]) -> Path:
    return credentials_path(environ).with_name(_FILE)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
