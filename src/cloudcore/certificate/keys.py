"""Seal keys of certificates, and check untrusted keys.

Arithmetic with untrusted numbers holds the interpreter's lock, and takes seconds if the numbers are
large or unusual. So their sizes are checked before any computation.
"""

from __future__ import annotations

import re
from base64 import b64decode, encodebytes
from collections import Counter
from dataclasses import dataclass, field
from math import lcm
from typing import Final, Protocol

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from cloudcore import key_pairs
from cloudcore.certificate.certificate import Certificate, KeyAlgorithm
from cloudcore.clock import MICROSECONDS
from cloudcore.key_pairs import PrivateKey

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

_CURVES: Final[dict[str, KeyAlgorithm]] = {"secp256r1": "ecdsa-p256", "secp384r1": "ecdsa-p384"}
_SIZES: Final[dict[int, KeyAlgorithm]] = {2048: "rsa-2048", 4096: "rsa-4096"}
_LENGTH: Final = rb"(?:\x82..|\x81.|[\x00-\x7f])"
_RSA_OR_EC: Final = re.compile(
    rb"\x30" + _LENGTH + rb"\x02\x01.\x30" + _LENGTH + rb"\x06"
    rb"(?:\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01|\x07\x2a\x86\x48\xce\x3d\x02\x01)",
    re.DOTALL,
)
"""The beginning of a PKCS #8 key (RFC 5208 §5) of the type rsaEncryption or id-ecPublicKey."""
_KEY_PEM: Final = re.compile(
    rb"-----BEGIN ((?:RSA |EC )?PRIVATE KEY)-----\s([A-Za-z0-9+/=\s]+)-----END \1-----"
)
_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, InternalError)
_PROBE: Final = b"signed and verified once"


def algorithm_of(key: object) -> KeyAlgorithm | None:
    """Return the algorithm of a public key, or None if it is not supported."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return _CURVES.get(key.curve.name)
    if isinstance(key, rsa.RSAPublicKey):
        return _SIZES.get(key.key_size)
    return None


def public_der(key: object) -> bytes:
    """Return a public key in DER, for comparisons."""
    assert isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def load_private_key(text: bytes) -> PrivateKey | None:
    """Return the first RSA or elliptic-curve key in a PEM, or None if there is none.

    Keys of other kinds are not parsed: even loading a DSA or DH key computes a power of numbers as
    large as the text allows. An RSA key is not checked here; see `is_sound`.
    """
    found = _KEY_PEM.search(text)
    if found is None:
        return None
    try:
        label, der = found[1], b64decode(found[2])
        if label == b"PRIVATE KEY" and _RSA_OR_EC.match(der) is None:
            return None
        # Re-encoded, so that the library reads exactly the bytes that were checked.
        read = b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, encodebytes(der), label)
        key = load_pem_private_key(read, None, unsafe_skip_rsa_key_validation=True)
    except _UNREADABLE:
        return None
    return key if isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)) else None


def is_cheap_to_verify(key: object) -> bool:
    """Return True if verifying a signature with a public key is certain to be fast."""
    if isinstance(key, rsa.RSAPublicKey):
        return key_pairs.is_cheap_to_verify(key.key_size, key.public_numbers().e)
    return isinstance(
        key, (ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey, ed448.Ed448PublicKey)
    )


def is_sound(key: rsa.RSAPrivateKey) -> bool:
    """Return True if an RSA key's numbers are consistent; the caller has checked the modulus size.

    The primes are not tested for primality: the test can take seconds, and an owner may choose any
    key whose public half verifies its signatures.
    """
    numbers = key.private_numbers()
    n, e = numbers.public_numbers.n, numbers.public_numbers.e
    p, q, d = numbers.p, numbers.q, numbers.d
    if 2 * p.bit_length() != key.key_size or 2 * q.bit_length() != key.key_size or p == q:
        return False
    if p * q != n or not p & q & 1 or not key_pairs.is_exponent(e):
        return False
    return (
        0 < d < n
        and e * d % lcm(p - 1, q - 1) == 1
        and numbers.dmp1 == d % (p - 1)
        and numbers.dmq1 == d % (q - 1)
        and 0 < numbers.iqmp < p
        and numbers.iqmp * q % p == 1
        and _signs(key)
    )


def _signs(key: rsa.RSAPrivateKey) -> bool:
    """Return True if the public half of a key verifies what the key signs."""
    scheme, digest = padding.PKCS1v15(), hashes.SHA256()
    try:
        key.public_key().verify(key.sign(_PROBE, scheme, digest), _PROBE, scheme, digest)
    except (InvalidSignature, *_UNREADABLE):
        return False
    return True


UNREADABLE: Final = (
    ValueError,
    TypeError,  # a name with a bit string
    KeyError,  # a TLS feature (RFC 7633) that the library does not know
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Exceptions that reading an untrusted certificate or signing request can raise. Parts are parsed
only at access, so every access can raise any of them."""


class AccountKeys(Protocol):
    """Seals short secrets of accounts under their KMS keys.

    Both methods raise a `PlatformError` if the key cannot be used: it was disabled or deleted, or
    the provider of its material does not answer.
    """

    async def seal(self, account_id: str, secret: bytes, context: str) -> tuple[str, bytes]:
        """Seal a secret for a `context`; return (id of the account's platform key, sealed)."""

    async def open(self, account_id: str, kms_key_id: str, sealed: bytes, context: str) -> bytes:
        """Return a secret that was sealed for the same `context`."""


class PrivateKeys:
    """Seals and opens the private keys of certificates under the KMS keys of accounts."""

    def __init__(self, account_keys: AccountKeys) -> None:
        self._account_keys = account_keys

    async def seal(self, account_id: str, certificate_id: str, key_pem: bytes) -> tuple[str, bytes]:
        """Seal the private key of a certificate; return (KMS key id, sealed bytes)."""
        return await self._account_keys.seal(account_id, key_pem, context_of(certificate_id))

    async def open(self, found: Certificate) -> bytes:
        """Return the private key of an issued certificate, in PEM; it is a secret."""
        assert found.private_key is not None
        assert found.kms_key_id is not None
        return await self._account_keys.open(
            found.account_id, found.kms_key_id, found.private_key, context_of(found.id)
        )


def context_of(owner_id: str) -> str:
    """Return the sealing context for the key of a certificate or of an authority."""
    return f"certificate key {owner_id}"


_KEY_SECONDS: Final = 1
"""Maximum seconds that a slow key takes; postponed attempts are this far apart."""


@dataclass(frozen=True, slots=True)
class SlowKeys:
    """Counts and postpones the slow keys (RSA) of certificates that this process is issuing."""

    under_way: Counter[str] = field(default_factory=Counter[str])
    """How many slow keys are being issued, by account."""
    postponed_until: dict[str, int] = field(default_factory=dict)
    """When the last postponed attempt of each account is due, in microseconds since the epoch."""

    def seconds_to_postpone(self, account_id: str, now: int) -> float:
        """Postpone a slow key behind the account's other slow keys; return the seconds to wait."""
        at = max(self.postponed_until.get(account_id, 0), now) + _KEY_SECONDS * MICROSECONDS
        self.postponed_until[account_id] = at
        return (at - now) / MICROSECONDS
