"""What a caller hears when a database refuses, and what the log tells of it.

A driver's own words name hosts, ports, users, files and statements. They are for whoever runs the
database; a client hears one plain sentence.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from cloudcore.errors import Unavailable

AGAIN_SECONDS: Final = 60.0
"""How long a refusal that goes on is not told again."""

_log = logging.getLogger(__name__)


class Refusals:
    """The refusals of one database: logged in a line each, when they begin and every minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}

    def unavailable(self, sentence: str, error: BaseException) -> Unavailable:
        """Log why the database refused, and return what its callers may hear."""
        now = self._clock()
        with self._lock:
            is_new = now - self._told_at.get(sentence, -AGAIN_SECONDS) >= AGAIN_SECONDS
            if is_new:
                self._told_at[sentence] = now
        if is_new:
            _log.warning("%s: %s", sentence, " ".join(str(error).split()))
        return Unavailable(sentence)
