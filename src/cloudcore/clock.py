"""The clock and the generator of ids."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]
"""Returns the current time in microseconds since 1970-01-01 UTC, as stored in rows."""

MICROSECONDS = 1_000_000


def system_clock() -> int:
    """Return the system's time in microseconds since the epoch."""
    return time.time_ns() // 1000


def microseconds(seconds: float) -> int:
    """Return a duration in microseconds, rounded down."""
    return int(seconds * MICROSECONDS)


def time_after(length: timedelta) -> str:
    """Return the time `length` from now as text, in the form that ``/v1`` accepts."""
    return f"{datetime.now(UTC) + length:%Y-%m-%dT%H:%M:%SZ}"


def uuid7(now: int | None = None) -> str:
    """Return a new UUIDv7 (RFC 9562 §5.7) as its 36-character string.

    UUIDs sort by the microsecond of their creation. So a primary key can serve as a cursor, and
    resources that a client creates one after another are listed in that order, even within a
    millisecond. The 12 bits after the version hold the fraction of the millisecond (RFC 9562 §6.2,
    method 3); 62 are random. `now` is in microseconds since the epoch; None is the current time.
    """
    milliseconds, fraction = divmod(system_clock() if now is None else now, 1000)
    random = int.from_bytes(os.urandom(8))
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | ((fraction << 12) // 1000) << 64
    value |= 0b10 << 62 | (random & ((1 << 62) - 1))
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
