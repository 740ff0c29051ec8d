"""Detect clients that move bytes too slowly.

A slow client occupies a connection but no thread, so it is tolerated while there are enough
connections. When those are scarce, a minimum rate keeps slow clients from occupying them all.
"""

from __future__ import annotations

from cloudcore.serving.limits import ServerLimits


class Pace:
    """The progress of one transfer, checked by every sweep; times in seconds, sizes in bytes."""

    __slots__ = ("_at", "_highest", "_mark", "_moved_at", "_receiving", "_seen_at")

    def __init__(self) -> None:
        self._at = self._moved_at = self._seen_at = 0.0
        self._mark = self._highest = -1
        self._receiving = False

    def fault(
        self,
        now: float,
        limits: ServerLimits,
        *,
        receiving: bool,
        waiting: bool,
        moved: int,
        crowded: bool,
    ) -> str | None:
        """Return why the client is too slow, or None.

        A transfer must move a byte in every `idle_seconds` and, while connections are scarce
        (`crowded`), `pace_bytes` in every `pace_seconds`. Time in which the server did not wait
        for the client does not count.
        """
        if receiving is not self._receiving or self._mark < 0:
            self._receiving, self._mark, self._at = receiving, moved, now
            self._highest, self._moved_at = moved, now
        elif not waiting:
            self._at += now - self._seen_at
            self._moved_at += now - self._seen_at
        self._seen_at = now
        if moved > self._highest:
            self._highest, self._moved_at = moved, now
        if moved - self._mark >= limits.pace_bytes:
            self._mark, self._at = moved, now
        if not waiting:
            return None
        what = "of the request body came" if receiving else "of the response was taken"
        if now - self._moved_at > limits.idle_seconds:
            return f"no byte {what} in {limits.idle_seconds:g} s"
        if crowded and now - self._at > limits.pace_seconds:
            return (
                f"less than {limits.pace_bytes} bytes {what} in {limits.pace_seconds:g} s "
                "while connections are scarce"
            )
        return None
