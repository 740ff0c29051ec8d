"""Lease ids: which message, and under which lease.

An id is 32 bytes in base64url: those of the message's id, and 16 random ones that all messages of
one request share. Only who leased a message knows them. An id is good for one acknowledgement, and
until the lease ends: another lease of the message has other random bytes.
"""

from __future__ import annotations

import os
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

_BYTES: Final = 32
_LENGTH: Final = 43
_TOKEN_BYTES: Final = 16


class LeaseId(NamedTuple):
    """A lease id that was read."""

    message_id: str
    token: str


def new_token() -> str:
    """Return the random part of new lease ids, as the column holds it."""
    return _text(os.urandom(_TOKEN_BYTES))


def lease_id(message_id: str, token: str) -> str:
    """Return the id of a message's lease under a token."""
    return _text(uuid.UUID(message_id).bytes + _bytes(token))


def read_lease_id(text: str) -> LeaseId | None:
    """Return what a lease id means, or None if it is none."""
    if len(text) != _LENGTH or not text.isascii():
        return None
    try:
        value = _bytes(text)
    except ValueError:
        return None
    if len(value) != _BYTES or _text(value) != text:
        return None
    return LeaseId(str(uuid.UUID(bytes=value[:_TOKEN_BYTES])), _text(value[_TOKEN_BYTES:]))


def _text(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
