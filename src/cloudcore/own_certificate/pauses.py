"""The pause between orders that fail, kept in a file so that a restart does not end it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from cloudcore.acme.key_files import write_private

FIRST_DELAY: Final = 120.0
MOST_DELAY: Final = 6 * 3600.0
"""Seconds between two orders that fail: five in the first hour, as much as public authorities
take, then four a day."""
_MOST_DOUBLINGS: Final = 20


class Pause(NamedTuple):
    """How often an order has failed, and until when none is made."""

    wanted: str
    """What was ordered; something else is ordered at once."""
    failures: int = 0
    until: float = 0.0
    """Unix time in seconds."""

    def longer(self, now: float, spread: float) -> Pause:
        """Return the pause after one more failure; `spread` is from 0 to 1."""
        delay = min(FIRST_DELAY * 2**self.failures, MOST_DELAY) * (1 + spread / 10)
        return Pause(self.wanted, min(self.failures + 1, _MOST_DOUBLINGS), now + delay)


_DECODER: Final = msgspec.json.Decoder(Pause)


def read_pause(path: Path, wanted: str, now: float) -> Pause:
    """Return the pause that a process before has kept, or none.

    One that is longer than any is of a clock that was wrong.
    """
    none = Pause(wanted)
    try:
        found = _DECODER.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return none
    is_ours = found.wanted == wanted and 0 <= found.failures <= _MOST_DOUBLINGS
    return found if is_ours and found.until <= now + 2 * MOST_DELAY else none


def keep_pause(path: Path, pause: Pause) -> None:
    """Keep a pause; without a failure there is none. If that fails, a restart ends it."""
    with suppress(OSError):
        if pause.failures:
            write_private(path, msgspec.json.encode(pause))
        else:
            path.unlink(missing_ok=True)
