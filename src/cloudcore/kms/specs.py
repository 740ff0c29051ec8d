"""What kinds of keys there are, and how their material is made."""

from __future__ import annotations

import os
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cloudcore.errors import InvalidInput
from cloudcore.kms.key import KeySpec, KeyUsage

USAGES: Final[dict[KeySpec, tuple[KeyUsage, ...]]] = {
    "aes-256": ("encrypt_decrypt",),
    "hmac-256": ("generate_verify_mac",),
    "rsa-2048": ("encrypt_decrypt", "sign_verify"),
    "rsa-4096": ("encrypt_decrypt", "sign_verify"),
    "ecdsa-p256": ("sign_verify",),
}
"""What keys of each spec can be used for; the first is the default."""
SYMMETRIC: Final = frozenset({"aes-256", "hmac-256"})
SLOW: Final = frozenset({"rsa-2048", "rsa-4096"})
"""Keys that take up to seconds of processor time to make."""

_SYMMETRIC_BYTES: Final = 32


def usage_of(spec: KeySpec, wanted: KeyUsage | None) -> KeyUsage:
    """Return the usage of a new key: the wanted one, or the spec's first.

    Raises:
        InvalidInput: keys of this spec cannot be used so.

    """
    usages = USAGES[spec]
    if wanted is not None and wanted not in usages:
        raise InvalidInput(
            f"key_usage: a key of the spec {spec} is for {' or '.join(usages)}, not {wanted}",
            field="key_usage",
            reason="not_allowed",
        )
    return wanted or usages[0]


def new_material(spec: KeySpec) -> bytes:
    """Make the material of a key: 32 random bytes, or a private key in PKCS #8 (DER).

    Those of `SLOW` take up to seconds of processor time.
    """
    if spec in SYMMETRIC:
        return os.urandom(_SYMMETRIC_BYTES)
    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if spec == "ecdsa-p256":
        private = ec.generate_private_key(ec.SECP256R1())
    else:
        private = rsa.generate_private_key(65537, 2048 if spec == "rsa-2048" else 4096)
    return private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
