"""Whether a host sends too slowly to be waited for."""

from __future__ import annotations

from cloudcore.outbound.failures import Unreachable


class Pace:
    """Watches the rate of one body, over seconds of waiting.

    Only the time in which its reader waited counts: a slow disk on our side is no fault of theirs.
    """

    def __init__(self, window: float, lowest_rate: int) -> None:
        self._window = window
        self._lowest_rate = lowest_rate
        self._waited = 0.0
        self._received = 0

    def add(self, count: int, waited: float) -> None:
        """Count bytes and the seconds waited for them.

        Raises:
            Unreachable: over the last window, they came too slowly.

        """
        self._received += count
        self._waited += waited
        if self._waited < self._window:
            return
        if self._received < self._lowest_rate * self._waited:
            raise Unreachable(f"it sent fewer than {self._lowest_rate} bytes per second", "answer")
        self._waited, self._received = 0.0, 0
