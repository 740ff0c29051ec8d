"""Paths of the certificate for a server's own names, and the metrics of its orders.

This module is cheap to import, since settings import it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudcore.serving.counters import CountedEvent
from cloudcore.serving.tls.paths import TlsFiles


def own_folder(beside: Path, directory: str) -> Path:
    """Return the folder for the files of one ACME authority; `beside` is the root key's folder.

    Each ACME `directory` (its URL) has its own folder, so that a test certificate does not stay in
    use once the real authority is configured.
    """
    host = (urlsplit(directory).hostname or "").replace(":", "-")
    known = hashlib.sha256(directory.encode()).hexdigest()[:8]
    return beside / "tls-acme" / f"{host}-{known}"


def own_certificate(folder: Path) -> TlsFiles:
    """Return the paths of certificate and key: the same file, so that they change together."""
    path = folder / "certificate.pem"
    return TlsFiles(path, path)


def pause_file(files: TlsFiles) -> Path:
    """Return the path of the file that stores the `Pause` after failed orders."""
    return files.certificate.with_name("pause.json")


def local_folder(beside: Path) -> Path:
    """Return the folder for the built-in authority's files; `beside` is the root key's folder."""
    return beside / "tls-own"


def root_file(folder: Path) -> Path:
    """Return the path of the built-in authority's root certificate, for clients to trust."""
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
