"""One thread that waits for many files: what the keeper does is a call when one is ready."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from typing import Final

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
Call = Callable[[int], None]
"""Called with the events that are there."""


class Loop:
    """Calls what waits for files, and for moments."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._moments: dict[object, tuple[float, Callable[[], None]]] = {}

    def watch(self, file: int | socket.socket, events: int, call: Call) -> None:
        """Call when a file is ready for any of the events; for none, watch it no more."""
        if file not in self._selector.get_map():
            if events:
                self._selector.register(file, events, call)
        elif events:
            self._selector.modify(file, events, call)
        else:
            self._selector.unregister(file)

    def close(self, file: socket.socket) -> None:
        """Close a socket and watch it no more."""
        self.watch(file, 0, lambda _events: None)
        file.close()

    def at(self, key: object, moment: float | None, call: Callable[[], None]) -> None:
        """Call at a moment of the monotonic clock, once; None takes it back. One a key."""
        if moment is None:
            self._moments.pop(key, None)
        else:
            self._moments[key] = moment, call

    def turn(self) -> None:
        """Wait for what comes next, and make its calls."""
        wait = None
        if self._moments:
            wait = max(0.0, min(moment for moment, _ in self._moments.values()) - time.monotonic())
        for key, events in self._selector.select(wait):
            if self._selector.get_map().get(key.fd) is key:  # no earlier call has changed it
                key.data(events)
        now = time.monotonic()
        for key_, (moment, call) in list(self._moments.items()):
            if moment <= now and key_ in self._moments:
                del self._moments[key_]
                call()
