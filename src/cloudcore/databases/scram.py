"""What proves a password to PostgreSQL, without the password (RFC 5803, SCRAM-SHA-256)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

_ITERATIONS: Final = 4096
"""As PostgreSQL itself; passwords of the platform are random."""


def verifier(password: str) -> str:
    """Return what ``ALTER ROLE … PASSWORD`` takes instead of an ASCII password."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    a, b, c = (base64.b64encode(each).decode() for each in (salt, stored, server))
    return f"SCRAM-SHA-256${_ITERATIONS}:{a}${b}:{c}"
