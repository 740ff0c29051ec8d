"""The credentials file of ``entrepot login``, which only its owner can read.

It holds one JSON object, keyed by the URL of the registry. Passwords of container clients are in a
file of the same kind. Each change writes a temporary file of mode 0600 and renames it, so the file
is never half written. Concurrent commands take turns.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from cloudcore.command_failures import CommandFailure
from cloudcore.files import replace_file

T = TypeVar("T")


class ApiToken(msgspec.Struct):
    """An access token, and its expiry in seconds since the epoch by this machine's clock."""

    access_token: str
    expires_at: int


class Credential(msgspec.Struct, omit_defaults=True):
    """The tokens of a login; never a password or the secret of a key."""

    token: ApiToken
    """The token of the person or service account that signed in."""
    refresh_token: str | None = None
    """A person's refresh token, which can be used once; None for a service account."""
    role: str | None = None
    """The role that commands act in."""
    role_token: ApiToken | None = None
    signed_in_at: float = 0
    """Seconds since the epoch by this machine's clock."""
    own_urls: dict[str, str] = {}
    """Maps families that are not at the registry's base URL to their own base URLs."""

    @property
    def acting(self) -> ApiToken | None:
        """Return the token to send; None if the role must be assumed first."""
        return self.token if self.role is None else self.role_token


def credentials_path(environ: Mapping[str, str]) -> Path:
    """Return the path in ``ENTREPOT_CREDENTIALS``, else one in the user's configuration folder."""
    named = environ.get("ENTREPOT_CREDENTIALS")
    if named:
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home() / ".config") / "entrepot" / "credentials.json"


def _home() -> Path:
    """Return the home folder; ``/`` if the user has none, as in a container."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def load(path: Path) -> dict[str, Credential]:
    """Map each registry's URL to its stored credential; empty if there is no file.

    Raise `CommandFailure` if the file is damaged.
    """
    return load_file(path, Credential)


def changing(path: Path) -> AbstractContextManager[dict[str, Credential]]:
    """Lock the file, yield its credentials by URL, and store them at the end if changed.

    Changes are stored even after an exception: they may hold the only token that is still valid.
    """
    return locked_file(path, Credential)


def load_file(path: Path, kind: type[T]) -> dict[str, T]:
    """Map keys to the records in a file of secrets; empty if there is no file.

    Raise `CommandFailure` if the file is damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, kind])  # type: ignore[valid-type]
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CommandFailure(
            f"{path} does not hold what 'entrepot login' writes; remove it and sign in again"
        ) from None


@contextmanager
def locked_file(path: Path, kind: type[T]) -> Iterator[dict[str, T]]:
    """Lock a file of secrets, yield its contents, and store them if they were changed.

    Files of one folder are changed one at a time.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Lock the folder: the file itself is replaced, and a lock file would be left behind.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = load_file(path, kind)
        contents = dict(before)
        try:
            yield contents
        finally:
            if contents != before:
                _store(path, contents)
    finally:
        os.close(folder)


def _store(path: Path, contents: Mapping[str, object]) -> None:
    """Replace the file; delete it if it would be empty."""
    if not contents:
        path.unlink(missing_ok=True)
        return
    replace_file(path, msgspec.json.encode(contents))
