"""The credentials file of ``entrepot login``: apart from all configuration, its owner's alone.

One JSON object, by the URL of the registry. It is written beside its place and moved there, with
mode 0600 from its first moment, so that it is never readable by others and never half written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Credential(msgspec.Struct, omit_defaults=True):
    """What a login left: tokens of a person, or of a key pair; never a password."""

    access_token: str
    refresh_token: str | None = None


def credentials_path(environ: Mapping[str, str]) -> Path:
    """Return the file's place: ``$ENTREPOT_CREDENTIALS``, else below the user's configuration."""
    named = environ.get("ENTREPOT_CREDENTIALS")
    if named:
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "entrepot" / "credentials.json"


def load(path: Path) -> dict[str, Credential]:
    """Return the stored credentials by URL; none when there is no file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Credential])
    except FileNotFoundError:
        return {}


def store(path: Path, credentials: Mapping[str, Credential]) -> None:
    """Write the credentials; without any, the file goes."""
    if not credentials:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
