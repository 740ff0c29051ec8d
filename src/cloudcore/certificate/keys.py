"""Private keys of certificates: which kinds there are, and how one is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

KeyAlgorithm = Literal["ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096"]
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

_CURVES: Final[dict[str, KeyAlgorithm]] = {"secp256r1": "ecdsa-p256", "secp384r1": "ecdsa-p384"}
_SIZES: Final[dict[int, KeyAlgorithm]] = {2048: "rsa-2048", 4096: "rsa-4096"}


def new_private_key(algorithm: KeyAlgorithm) -> PrivateKey:
    """Make a key; one of RSA takes up to seconds of processor time."""
    if algorithm == "ecdsa-p256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "ecdsa-p384":
        return ec.generate_private_key(ec.SECP384R1())
    return rsa.generate_private_key(65537, 2048 if algorithm == "rsa-2048" else 4096)


def algorithm_of(key: object) -> KeyAlgorithm | None:
    """Return the algorithm of a public key, or None if certificates here have no such keys."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return _CURVES.get(key.curve.name)
    if isinstance(key, rsa.RSAPublicKey):
        return _SIZES.get(key.key_size)
    return None


def private_pem(key: PrivateKey) -> bytes:
    """Return a private key as PKCS #8 in PEM; it is a secret."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_der(key: object) -> bytes:
    """Return a public key in DER, to compare it."""
    assert isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def is_sound(key: rsa.RSAPrivateKey) -> bool:
    """Return True if the numbers of a key fit each other; its modulus is known to be small."""
    numbers = key.private_numbers()
    modulus = numbers.public_numbers.n
    if numbers.p * numbers.q != modulus or numbers.d >= modulus:
        return False
    try:
        numbers.private_key()
    except ValueError:
        return False
    return True


def signing_request(key: PrivateKey, domains: Sequence[str]) -> bytes:
    """Return a request to sign a certificate for `domains`, in DER."""
    names = x509.SubjectAlternativeName([x509.DNSName(domain) for domain in domains])
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(
        names, critical=False
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
