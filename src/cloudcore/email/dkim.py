"""DKIM (RFC 6376): keys of domains, their records, and signatures of messages."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cloudcore.email.resources import SendingIdentity
from cloudcore.keyring import Keyring

_BITS: Final = 2048
_FORM: Final = (b"relaxed", b"relaxed")
_SIGNED: Final = (
    b"from",
    b"reply-to",
    b"to",
    b"cc",
    b"subject",
    b"date",
    b"message-id",
    b"in-reply-to",
    b"references",
    b"mime-version",
    b"content-type",
    b"content-transfer-encoding",
    b"list-unsubscribe",
    b"list-unsubscribe-post",
)
"""The header fields that a signature covers if a message has them (RFC 6376 §5.4.1, RFC 8058
§4)."""
OpenKey = Callable[[SendingIdentity], bytes]
"""Returns the private key of a domain."""


def new_key() -> tuple[bytes, str]:
    """Generate a key; return (private key in PEM, public key in DER as base64).

    This takes up to several seconds of processor time.
    """
    key = rsa.generate_private_key(65537, _BITS)
    # dkimpy reads the older format.
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return private, b64encode(public).decode()


def seal_key(keyring: Keyring, identity_id: str, key: bytes) -> bytes:
    """Return an identity's private key in sealed form, which `open_key` opens."""
    return keyring.seal(key, _context(identity_id))


def open_key(keyring: Keyring, identity: SendingIdentity) -> bytes:
    """Return the private key of a domain identity, in PEM."""
    assert identity.dkim_key is not None, "a domain has a key"
    return keyring.open(identity.dkim_key, _context(identity.id))


def record_value(public: str) -> str:
    """Return the TXT record of a public key (RFC 6376 §3.6.1)."""
    return f"v=DKIM1; k=rsa; p={public}"


def is_record_of(text: bytes, public: str) -> bool:
    """Return True if a TXT record allows this key to sign mail (RFC 6376 §3.6.1)."""
    pairs = [each.partition("=") for each in text.decode("ascii", "replace").split(";")]
    tags = {name.strip(): "".join(value.split()) for name, _, value in pairs}
    return (
        tags.get("v", "DKIM1") == "DKIM1"
        and tags.get("k", "rsa") == "rsa"
        and "sha256" in tags.get("h", "sha256").split(":")
        and not {"*", "email"}.isdisjoint(tags.get("s", "*").split(":"))
        and tags.get("p") == public
    )


def signed(message: bytes, identity: SendingIdentity, open_key: OpenKey) -> bytes:
    """Return a message with a domain's DKIM signature added; other signatures in the message stay.

    Return the message unchanged if the identity is an address. The lines of the message end in
    CRLF. Signing takes milliseconds of a core, so call this in a thread. The signature covers
    the body, the fields `_SIGNED`, and the absence of a second ``From`` (RFC 6376 §8.15).
    """
    if identity.kind != "domain":
        return message
    from dkim import DKIM  # noqa: PLC0415 - a tenth of a second

    assert identity.dkim_selector is not None
    signer = DKIM(message)
    has = Counter(name.lower() for name, _ in signer.headers)
    covered = [name for name in _SIGNED for _ in range(has[name])]
    field = signer.sign(
        identity.dkim_selector.encode(),
        identity.value.encode(),
        open_key(identity),
        canonicalize=_FORM,
        include_headers=[*covered, b"from"],
    )
    return bytes(field) + message


def _context(identity_id: str) -> str:
    return f"email dkim key {identity_id}"
