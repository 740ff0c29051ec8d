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
    """Return the folder of what an authority knows and signed, in the folder of the root key.

    Each directory has its own: what a test authority signed is not served for long when the real
    one is named.
    """
    host = (urlsplit(directory).hostname or "").replace(":", "-")
    known = hashlib.sha256(directory.encode()).hexdigest()[:8]
    return beside / "tls-acme" / f"{host}-{known}"


def own_certificate(folder: Path) -> TlsFiles:
    """Return where the certificate is: with its key in one file, so they change together."""
    path = folder / "certificate.pem"
    return TlsFiles(path, path)


def pause_file(files: TlsFiles) -> Path:
    """Return where the pause between orders that fail is kept."""
    return files.certificate.with_name("pause.json")


def local_folder(beside: Path) -> Path:
    """Return the folder of what the install's own authority signed, in that of the root key."""
    return beside / "tls-own"


def root_file(folder: Path) -> Path:
    """Return where the root of the install's own authority is, for clients to trust."""
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
