"""A TCP relay whose network can be taken away, made slow, and given back."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self


class Relay:
    """Passes bytes between whoever connects to `port` and one address, unless it is held."""

    def __init__(self, port: int) -> None:
        """Relay to `port` of 127.0.0.1."""
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._gates: list[threading.Event] = []
        self._sockets: list[socket.socket] = []
        self._delay = 0.0
        self.accepted = 0
        """Connections that there ever were."""
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread's wait, too
        self._accepting.join()
        self._listener.close()
        self.release()
        self.cut()

    def hold(self) -> None:
        """Pass nothing on, without a word to either side."""
        self._open.clear()

    def hold_present(self) -> None:
        """Do so for the connections that there are, but not for later ones."""
        for each in self._gates:
            each.clear()

    def release(self) -> None:
        """Pass on what came meanwhile, and what comes."""
        self._open.set()
        for each in self._gates:
            each.set()

    def slow(self, seconds: float) -> None:
        """Let all that comes take so long on its way, 64 KiB of a connection at a time."""
        self._delay = seconds

    def cut(self) -> None:
        """Break the connections."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.accepted += 1
                try:
                    far = socket.create_connection(self._to)
                except OSError:
                    near.close()
                    continue
                self._sockets += (near, far)
                gate = threading.Event()
                gate.set()
                self._gates.append(gate)
                for way in ((near, far, gate), (far, near, gate)):
                    threading.Thread(target=self._pass, args=way, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, gate: threading.Event) -> None:
        with suppress(OSError), source, target:
            while received := source.recv(1 << 16):
                self._open.wait()
                gate.wait()
                time.sleep(self._delay)
                target.sendall(received)
