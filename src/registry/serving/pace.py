"""Tells a client that moves bytes slowly from one that does not move them at all."""

from __future__ import annotations

from registry.serving.limits import ServerLimits


class Pace:
    """The progress of one transfer, looked at by every sweep."""

    __slots__ = ("_at", "_mark", "_receiving", "_seen_at")

    def __init__(self) -> None:
        self._at = self._seen_at = 0.0
        self._mark = -1
        self._receiving = False

    def is_lost(
        self, now: float, limits: ServerLimits, *, receiving: bool, waiting: bool, moved: int
    ) -> bool:
        """Tell whether the client has been too slow for too long.

        A request body must bring `body_pace_bytes` in every `body_pace_seconds`; a response
        must move at all within `response_stall_seconds`. Time in which the server did not
        wait for the client does not count.
        """
        if receiving is not self._receiving or self._mark < 0:
            self._receiving, self._mark, self._at = receiving, moved, now
        elif not waiting:
            self._at += now - self._seen_at
        self._seen_at = now
        wanted = limits.body_pace_bytes if receiving else 1
        if moved - self._mark >= wanted:
            self._mark, self._at = moved, now
        patience = limits.body_pace_seconds if receiving else limits.response_stall_seconds
        return waiting and now - self._at > patience
