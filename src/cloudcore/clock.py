"""The clock and the generator of ids."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the current time in microseconds since 1970-01-01 UTC, as stored in rows."""

MICROSECONDS = 1_000_000


def system_clock() -> int:
    """Return the system's time in microseconds since the epoch."""
    return time.time_ns() // 1000


def uuid7(now: int | None = None) -> str:
    """Return a new UUIDv7 (RFC 9562 §5.7) as its 36-character string.

    UUIDs sort by the millisecond of their creation, so a primary key can serve as a cursor.
    `now` is in microseconds since the epoch.
    """
    milliseconds = (system_clock() if now is None else now) // 1000
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | ((random >> 68) & 0xFFF) << 64
    value |= 0b10 << 62 | (random & ((1 << 62) - 1))
    return str(uuid.UUID(int=value))
