"""The return path of each delivery (VERP): an envelope sender that names message and recipient.

The local part is ``bounces-`` and, in base32, the message's id, the recipient's position and an
HMAC-SHA-256 of both, truncated to 80 bits. The HMAC keeps strangers from forging a return path to
suppress an address. Base32 ignores case, which some mail servers change.
"""

from __future__ import annotations

import hmac
from base64 import b32decode, b32encode
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

PREFIX: Final = "bounces-"
_ID_BYTES: Final = 16
_POSITION_BYTES: Final = 2
_MAC_BYTES: Final = 10
ENCODED: Final = 45
"""The number of base32 characters of 28 bytes, without the padding."""


class Returned(NamedTuple):
    """The message and recipient that a return path names."""

    message_id: str
    position: int
    """The recipient's position in the message, from 0."""


def return_path(domain: str, key: bytes, message_id: str, position: int) -> str:
    """Return the envelope sender of a message to the recipient at `position`, counted from 0.

    Its local part has 53 characters of the 64 that RFC 5321 §4.5.3.1.1 allows.
    """
    named = UUID(message_id).bytes + position.to_bytes(_POSITION_BYTES)
    mac = hmac.digest(key, named, "sha256")[:_MAC_BYTES]
    encoded = b32encode(named + mac).decode().rstrip("=").lower()
    return f"{PREFIX}{encoded}@{domain}"


def read_return_path(domain: str, key: bytes, address: str) -> Returned | None:
    """Return the message and recipient of a return path; None if the address is no return path.

    Letters may be of either case.
    """
    if not address.isascii():  # some other letters become ASCII in lower case
        return None
    local, _, at = address.lower().rpartition("@")
    encoded = local.removeprefix(PREFIX)
    if at != domain.lower() or encoded == local or len(encoded) != ENCODED:
        return None
    with suppress(ValueError):  # not of the alphabet
        named = b32decode(f"{encoded.upper()}===")[: _ID_BYTES + _POSITION_BYTES]
        message_id, position = str(UUID(bytes=named[:_ID_BYTES])), named[_ID_BYTES:]
        found = Returned(message_id, int.from_bytes(position))
        ours = return_path(at, key, *found)
        return found if hmac.compare_digest(ours, address.lower()) else None
    return None
