"""The metadata of an instance, which it asks its keeper for."""

from __future__ import annotations

import socket

from cloudcore.compute.metadata_server import MAX_CONNECTIONS, Conversation, MetadataService
from cloudcore.nodes.loop import READ, WRITE, Loop
from cloudcore.nodes.relays import Gate

_CHUNK: int = 32_768


def serve_metadata(loop: Loop, listener: socket.socket, service: MetadataService) -> None:
    """Answer the instance about itself."""
    gate = Gate(loop, MAX_CONNECTIONS)
    gate.listen(listener, lambda accepted: _Answering(loop, accepted, service, gate).begin())


class _Answering:
    """One connection of the metadata service."""

    def __init__(
        self, loop: Loop, accepted: socket.socket, service: MetadataService, gate: Gate
    ) -> None:
        self._loop = loop
        self._socket = accepted
        self._gate = gate
        self._conversation = Conversation(service)
        self._to_send = b""

    def begin(self) -> None:
        conversation = self._conversation
        if conversation.is_over and not self._to_send:
            self._close()
            return
        self._loop.at(self, conversation.deadline, self._close)
        self._loop.watch(self._socket, WRITE if self._to_send else READ, self._go_on)

    def _go_on(self, events: int) -> None:
        try:
            if events & WRITE:
                self._to_send = self._to_send[self._socket.send(self._to_send) :]
            elif received := self._socket.recv(_CHUNK):
                self._to_send = self._conversation.receive(received)
            else:
                self._close()
                return
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        self.begin()

    def _close(self) -> None:
        self._loop.at(self, None, self._close)
        self._loop.close(self._socket)
        self._gate.leave()
