"""Key pairs: generation, PEM, signing requests, limits of RSA keys.

A large RSA key from an untrusted client is refused: arithmetic with its numbers holds the
interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
SLOW: Final = frozenset({"rsa-2048", "rsa-4096"})
"""Algorithms whose keys take up to several seconds of processor time to generate."""


def new_private_key(algorithm: str) -> PrivateKey:
    """Generate a private key of one of the algorithms in `SLOW`, or ``ecdsa-p256`` or ``-p384``."""
    if algorithm == "ecdsa-p256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "ecdsa-p384":
        return ec.generate_private_key(ec.SECP384R1())
    return rsa.generate_private_key(65537, int(algorithm.removeprefix("rsa-")))


def key_pem(key: PrivateKey) -> bytes:
    """Return a private key as PKCS #8 in PEM; it is a secret."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def signing_request(key: PrivateKey, domains: Sequence[str]) -> bytes:
    """Return a certificate signing request for `domains`, in DER."""
    names = x509.SubjectAlternativeName([x509.DNSName(domain) for domain in domains])
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(
        names, critical=False
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


MOST_BITS: Final = 8192
MOST_EXPONENT_BITS: Final = 33
"""Bits of the largest public exponent that clients accept; nearly all keys have one of 17 bits."""


def is_exponent(e: int) -> bool:
    """Return True if an RSA exponent is odd, above 1, and no longer than clients accept."""
    return e > 1 and e % 2 == 1 and e.bit_length() <= MOST_EXPONENT_BITS


def is_cheap_to_verify(modulus_bits: int, e: int) -> bool:
    """Return True if verifying a signature with this public key takes less than a millisecond."""
    return modulus_bits <= MOST_BITS and is_exponent(e)
