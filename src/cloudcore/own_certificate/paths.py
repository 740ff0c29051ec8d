"""Paths of the certificate of a server's own names, and counters of its orders.

Cheap to import, as settings are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudcore.serving.counters import CountedEvent
from cloudcore.serving.tls.paths import TlsFiles


def own_folder(beside: Path, directory: str) -> Path:
    """Return the folder of one authority's files, in the folder of the root key.

    Each directory has its own: a certificate of a test authority is not served for long once the
    real one is configured.
    """
    host = (urlsplit(directory).hostname or "").replace(":", "-")
    known = hashlib.sha256(directory.encode()).hexdigest()[:8]
    return beside / "tls-acme" / f"{host}-{known}"


def own_certificate(folder: Path) -> TlsFiles:
    """Return the path of certificate and key: one file, so that they change together."""
    path = folder / "certificate.pem"
    return TlsFiles(path, path)


def pause_file(files: TlsFiles) -> Path:
    """Return the path of the pause between failing orders."""
    return files.certificate.with_name("pause.json")


def local_folder(beside: Path) -> Path:
    """Return the folder of the install's own authority's files, in that of the root key."""
    return beside / "tls-own"


def root_file(folder: Path) -> Path:
    """Return the path of the root of the install's own authority, for clients to trust."""
    return folder / "root.pem"


ORDERED: Final = "tls.order"
ORDER_EVENTS: Final = tuple(
    CountedEvent(
        f"{ORDERED}.{outcome}",
        "entrepot_tls_orders",
        "Orders of the server's own certificate.",
        {"outcome": outcome},
    )
    for outcome in ("succeeded", "failed")
)
