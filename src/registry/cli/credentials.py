"""The credentials file of ``entrepot login``: apart from all configuration, its owner's alone.

One JSON object, by the URL of the registry. It is written beside its place and moved there, with
mode 0600 from its first moment, so that it is never readable by others and never half written
(rule I13). Commands that run at once take turns in changing it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from registry.cli.failure import CommandFailure


class ApiToken(msgspec.Struct):
    """An access token, and the second of the epoch it ends at by this machine's clock."""

    access_token: str
    expires_at: int


class Credential(msgspec.Struct, omit_defaults=True):
    """What a login left: tokens, never a password or the secret of a key."""

    token: ApiToken
    """Of the person or service account that signed in."""
    refresh_token: str | None = None
    """A person's; good for one use."""
    role: str | None = None
    """The role that commands act in."""
    role_token: ApiToken | None = None

    @property
    def acting(self) -> ApiToken | None:
        """Return the token that commands show; None when the role must be assumed first."""
        return self.token if self.role is None else self.role_token


def credentials_path(environ: Mapping[str, str]) -> Path:
    """Return the file's place: ``$ENTREPOT_CREDENTIALS``, else below the user's configuration."""
    named = environ.get("ENTREPOT_CREDENTIALS")
    if named:
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "entrepot" / "credentials.json"


def load(path: Path) -> dict[str, Credential]:
    """Return the stored credentials by URL; none when there is no file.

    Raises:
        Failure: the file holds something else.

    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Credential])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CommandFailure(
            f"{path} does not hold what 'entrepot login' writes; remove it and sign in again"
        ) from None


@contextmanager
def changing(path: Path) -> Iterator[dict[str, Credential]]:
    """Yield the credentials to change while no other command does; store them at the end.

    What was changed before a failure is stored too: a token that is spent cannot be had back.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The folder is what is locked: the file is replaced, and an extra one would be left behind.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = load(path)
        credentials = dict(before)
        try:
            yield credentials
        finally:
            if credentials != before:
                _store(path, credentials)
    finally:
        os.close(folder)


def _store(path: Path, credentials: Mapping[str, Credential]) -> None:
    """Replace the file; without any credential, it goes."""
    if not credentials:
        path.unlink(missing_ok=True)
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".credentials-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(credentials))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
