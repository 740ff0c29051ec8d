"""Relay connections to a program, in one thread that waits for many files (`Loop`)."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
Call = Callable[[int], None]
"""Called with the events for which the file is ready."""


class Loop:
    """An event loop: calls functions when files are ready, or at a certain time."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._moments: dict[object, tuple[float, Callable[[], None]]] = {}

    def watch(self, file: int | socket.socket, events: int, call: Call) -> None:
        """Call `call` when a file is ready for any of `events`; if `events` is 0, stop watching."""
        if not events:
            self.ignore(file)
        elif file in self._selector.get_map():
            self._selector.modify(file, events, call)
        else:
            self._selector.register(file, events, call)

    def ignore(self, file: int | socket.socket) -> None:
        """Stop watching a file."""
        if file in self._selector.get_map():
            self._selector.unregister(file)

    def close(self, file: socket.socket) -> None:
        """Stop watching a socket, and close it."""
        self.ignore(file)
        file.close()

    def at(self, key: object, moment: float | None, call: Callable[[], None]) -> None:
        """Call `call` once at a moment of the monotonic clock; None cancels the call.

        Each key has at most one pending call.
        """
        if moment is None:
            self._moments.pop(key, None)
        else:
            self._moments[key] = moment, call

    def turn(self) -> None:
        """Wait for the next events, and call their functions."""
        wait = None
        if self._moments:
            wait = max(0.0, min(moment for moment, _ in self._moments.values()) - time.monotonic())
        for key, events in self._selector.select(wait):
            if self._selector.get_map().get(key.fd) is key:  # no earlier call has replaced the key
                key.data(events)
        now = time.monotonic()
        for key_, (moment, call) in list(self._moments.items()):
            if moment <= now and key_ in self._moments:
                del self._moments[key_]
                call()


MOST_RELAYED: int = 400
"""Concurrent connections to all ports; further connections wait. Each takes two descriptors."""
_CHUNK: int = 32_768


class Gate:
    """Accepts connections, up to a maximum number at a time."""

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._left = most
        self._listeners: list[tuple[socket.socket, Callable[[socket.socket], None]]] = []

    def listen(self, listener: socket.socket, take: Callable[[socket.socket], None]) -> None:
        """Pass each connection of a listener to `take`; call `leave` when a connection ends."""
        listener.settimeout(0)
        self._listeners.append((listener, take))
        self._loop.watch(listener, READ, partial(self._accept, listener, take))

    def leave(self) -> None:
        """Free the place of a connection that has ended."""
        self._left += 1
        if self._left == 1:
            for listener, take in self._listeners:
                self._loop.watch(listener, READ, partial(self._accept, listener, take))

    def _accept(
        self, listener: socket.socket, take: Callable[[socket.socket], None], _events: int
    ) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        accepted.settimeout(0)
        self._left -= 1
        if self._left == 0:
            for each, _ in self._listeners:
                self._loop.ignore(each)
        take(accepted)


class _End:
    """One of the two sockets of a relay."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.to_send = b""
        self.has_ended = False
        """True if this end will send nothing more."""
        self.is_told = False
        """True if the connection was shut down for writing, as the other end has ended."""


class Relay:
    """Copies bytes between two connections; reads from each only as fast as the other accepts."""

    def __init__(
        self, loop: Loop, first: socket.socket, second: socket.socket, ended: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._ends = _End(first), _End(second)
        self._ended = ended
        self._is_over = False
        self._watch()

    def _watch(self) -> None:
        for end, other in (self._ends, self._ends[::-1]):
            if other.has_ended and not end.to_send and not end.is_told:
                end.is_told = True
                with contextlib.suppress(OSError):
                    end.socket.shutdown(socket.SHUT_WR)
        if all(end.is_told for end in self._ends):
            self._close()
            return
        for end, other in (self._ends, self._ends[::-1]):
            reads = READ if not end.has_ended and not other.to_send else 0
            writes = WRITE if end.to_send else 0
            self._loop.watch(end.socket, reads | writes, partial(self._pass, end, other))

    def _pass(self, end: _End, other: _End, events: int) -> None:
        try:
            if events & READ and not end.has_ended and not other.to_send:
                other.to_send = end.socket.recv(_CHUNK)
                end.has_ended = not other.to_send
            if events & WRITE and end.to_send:
                end.to_send = end.to_send[end.socket.send(end.to_send) :]
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        self._watch()

    def _close(self) -> None:
        if not self._is_over:
            self._is_over = True
            for end in self._ends:
                self._loop.close(end.socket)
            self._ended()


def serve_port(
    loop: Loop, gate: Gate, listener: socket.socket, dial: Callable[[], socket.socket]
) -> None:
    """Relay each connection of a listener to a new connection that `dial` returns."""

    def take(accepted: socket.socket) -> None:
        try:
            dialled = dial()
        except OSError:
            accepted.close()
            gate.leave()
            return
        Relay(loop, accepted, dialled, gate.leave)

    gate.listen(listener, take)
