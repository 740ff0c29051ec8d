"""Log why a database failed, and give callers a plain sentence instead.

A driver's message may name hosts, ports, users, files and statements: it is for the operator only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from cloudcore.errors import Unavailable

AGAIN_SECONDS: Final = 60.0
"""Seconds until a failure of the same kind is logged again."""

_log = logging.getLogger(__name__)


class Refusals:
    """The failures of one database. Each kind is logged at once, then at most every minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}

    def unavailable(
        self, sentence: str, error: BaseException, kind: type[Unavailable] = Unavailable
    ) -> Unavailable:
        """Log why the database refused, and return the error for its callers."""
        now = self._clock()
        with self._lock:
            is_new = now - self._told_at.get(sentence, -AGAIN_SECONDS) >= AGAIN_SECONDS
            if is_new:
                self._told_at[sentence] = now
        if is_new:
            _log.warning("%s: %s", sentence, " ".join(str(error).split()))
        return kind(sentence)
