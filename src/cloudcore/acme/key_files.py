"""Keys in files that their owner alone can read."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import mkstemp

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PKCS #8 in PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once, readable only by its owner."""
    descriptor, unnamed = mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(unnamed).replace(path)
    except BaseException:
        Path(unnamed).unlink(missing_ok=True)
        raise
