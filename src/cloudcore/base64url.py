"""Base64url without padding (RFC 7515 §2): the text of tokens, challenges, keys and markers."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256


def encode(value: bytes) -> str:
    """Return bytes as base64url text."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Decode base64url text; ignore the unused bits of its last character.

    Raise `ValueError` if the text is not ASCII, or has a length that no encoding has.
    """
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def code_challenge(verifier: str) -> str:
    """Return the PKCE code challenge of a verifier, by the method S256 (RFC 7636 §4.2)."""
    return encode(sha256(verifier.encode()).digest())
