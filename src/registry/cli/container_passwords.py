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
from urllib.parse import urlsplit

import msgspec

from registry.cli.api import ApiClient, client_for
from registry.cli.credentials import changing_file, credentials_path, load, load_file
from registry.cli.environment_key import find_key
from registry.cli.failure import CommandFailure

PATH: Final = "/v1/authorization-token"
_FILE: Final = "container-passwords.json"
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


def find_source(host: str, environ: Mapping[str, str]) -> Source | None:
    """Return what makes passwords for a host, with its port if it has one; None if nothing does.

    Raises:
        CommandFailure: the access key in the environment is incomplete, or a file is damaged.

    """
    return next((each for each in _sources(environ) if _is_of(each, host, environ)), None)


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


def _is_of(source: Source, host: str, environ: Mapping[str, str]) -> bool:
    """Return True for the host of the URL, and for the one that the registry calls its own."""
    if _plain(source.client.host, source.client.url) == _plain(host, source.client.url):
        return True
    kept = _load(environ).get(source.key)
    return kept is not None and kept.registry == host


def _plain(host: str, url: str) -> str:
    """Return a host in lower case, without the default port of the URL's scheme."""
    default = _DEFAULT_PORTS[urlsplit(url).scheme]
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
