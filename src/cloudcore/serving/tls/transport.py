"""The transport of a TLS connection, over a socket that bulk threads may borrow.

The event loop's own TLS hides its state, so a body could only be moved on the event loop. Here the
protocol's transport holds the state, and lends it to one bulk job at a time. Until that job ends,
the transport reads nothing, and writes wait.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from cloudcore.serving.tls.stream import TlsLoan, TlsStream

if TYPE_CHECKING:
    from cloudcore.serving.tls.files import ServedTls
    from cloudcore.serving.tls.validation import Validations

READ_BYTES: Final = 256 * 1024


@cache
def _scratch() -> bytearray:
    """Return the buffer for all decryption; the event loop has one thread, so one is enough."""
    return bytearray(READ_BYTES)


class TlsProtocol(asyncio.Protocol):
    """A protocol over TLS: the methods that the transport calls, besides those of asyncio."""

    __slots__ = ()

    def linger(self) -> None:
        """Shut down our side and wait briefly for the client."""
        raise NotImplementedError

    def refuse_plain(self, data: bytes) -> None:
        """Answer a client that speaks without TLS; `data` are its first bytes."""
        raise NotImplementedError


class TlsTransport(asyncio.Transport):
    """A TLS connection of the server, as an asyncio transport.

    It implements what its protocol needs from a transport: anything that cannot be sent at once
    pauses the writer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        context: ssl.SSLContext,
        protocol: TlsProtocol,
        on_failure: Callable[[str], None],
        validations: Validations | None = None,
    ) -> None:
        """Begin with the handshake on a connected, non-blocking socket.

        `on_failure` is called with the reason if the handshake fails; `validations` are shown to an
        authority that requests them.
        """
        super().__init__()
        self._scratch = _scratch()
        self._loop = loop
        self._protocol = protocol
        self._on_failure = on_failure
        self._validations = validations
        self._validates = False  # it is an authority, which wants the handshake alone
        self._names = {"sockname": sock.getsockname(), "peername": _peer_name(sock)}
        self._stream: TlsStream | socket.socket = TlsStream(sock, context)
        self._descriptor = self._stream.fileno()
        self._begun = False  # the first byte was that of a TLS hello
        self._established = False
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._paused_writer = False
        self._wants_reading = True
        self._reader = self._writer = False  # whether the loop watches the socket
        self._lent = False
        self._eof = False  # our side is to be shut down once all is sent
        self._ends = False  # close once all is sent
        self._closing = False
        protocol.connection_made(self)
        self._watch()

    # What the protocol calls

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """Return the socket's names, or for ``socket`` an object with its descriptor."""
        return self._stream if name == "socket" else self._names.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: any unsent byte pauses the writer.

        Raise `ValueError` for limits other than 0.
        """
        if high != 0 or low:
            raise ValueError("anything that is not sent pauses the writer")

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be encrypted and sent."""
        return self._waiting_bytes

    def is_closing(self) -> bool:
        """Return True if the connection is closed or closing."""
        return self._closing or self._ends

    def pause_reading(self) -> None:
        """Leave the client's bytes in the socket."""
        self._wants_reading = False
        self._watch()

    def resume_reading(self) -> None:
        """Read the client's bytes again."""
        self._wants_reading = True
        self._watch()
        self._read_pending()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send as much as the socket accepts, and the rest later."""
        if self._closing or self._eof or not data:
            return
        self._waiting.append(memoryview(data))
        self._waiting_bytes += len(data)
        if self._established and not self._lent and not self._writer:
            self._flush()
        if self._waiting and not self._paused_writer and not self._closing:
            self._paused_writer = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        """Shut down our side once everything is sent; what is read later is not decrypted."""
        self._eof = True
        if not (self._waiting or self._lent):
            self._shut_down()

    def close(self) -> None:
        """Close once everything is sent."""
        if self.is_closing():
            return
        self._ends = True
        if not self._established or not (self._waiting or self._lent):
            self._lose(None)

    def abort(self) -> None:
        """Close at once."""
        self._waiting.clear()
        self._waiting_bytes = 0
        if not self._closing:
            self._lose(None, tells=False)

    # What a bulk job calls

    def lend(self) -> TlsLoan:
        """Return the connection for a bulk job; everything written must have been sent."""
        if self._lent or self._waiting or not isinstance(self._stream, TlsStream):
            raise RuntimeError("a TLS connection cannot be lent while it is in use")
        self._lent = True
        self._watch()
        return TlsLoan(self._stream, self._take_back)

    def _take_back(self) -> None:
        self._lent = False
        if self._closing:
            self._stream.close()
            return
        if self._waiting:
            self._flush()
        elif self._eof:
            self._shut_down()
        elif self._ends:
            self._lose(None)
        self._watch()
        self._read_pending()

    # What the loop calls

    def _watch(self) -> None:
        """Register the socket with the loop for the events that the transport waits for."""
        is_ours = not (self._lent or self._closing)
        reads = is_ours and (self._wants_reading or not self._established)
        stream = self._stream
        if self._established or not isinstance(stream, TlsStream):
            writes = is_ours and bool(self._waiting)
        else:
            writes = is_ours and stream.waits_to_write
        if reads is not self._reader:
            self._reader = reads
            if reads:
                self._loop.add_reader(self._descriptor, self._read)
            else:
                self._loop.remove_reader(self._descriptor)
        if writes is not self._writer:
            self._writer = writes
            if writes:
                self._loop.add_writer(self._descriptor, self._flush)
            else:
                self._loop.remove_writer(self._descriptor)

    def _read(self) -> None:
        """Read the available bytes, of the handshake or of a request."""
        if self._closing or self._lent:
            return
        try:
            if not self._established and not self._shake_hands():
                return
            if not self._wants_reading:
                return
            count = self._stream.recv_into(self._scratch)
        except BlockingIOError:
            self._watch()
            return
        except OSError as error:
            self._fail(error)
            return
        if not count:
            self._take_eof()
            return
        data = bytes(memoryview(self._scratch)[:count])
        self._protocol.data_received(data)
        self._read_pending()

    def _read_pending(self) -> None:
        """Read again soon if bytes are already decrypted, as the socket does not report these."""
        if not self._wants_reading or self._lent or self._closing:
            return
        if self._established and isinstance(self._stream, TlsStream) and self._stream.is_pending:
            self._loop.call_soon(self._read)

    def _shake_hands(self) -> bool:
        """Continue the handshake; return True once the connection is established.

        Raise `BlockingIOError` if the client has to send more.
        """
        stream = self._stream
        assert isinstance(stream, TlsStream)
        if not self._begun:
            begins = stream.begins_tls()
            if begins is None:
                self._lose(None)
                return False
            if not begins:
                self._take_plain(stream)
                return False
            self._find_validation(stream)
            self._begun = True
        try:
            stream.shake_hands()
        except ConnectionError as error:
            self._on_failure(str(error))
            self._protocol.linger()  # not a reset, which could destroy the TLS alert
            return False
        self._established = True
        if self._validates:
            self._lose(None)
            return False
        if self._waiting:
            self._flush()
        self._watch()
        return not self._closing

    def _find_validation(self, stream: TlsStream) -> None:
        """Use the validation certificate if the hello comes from an authority."""
        if self._validations is None or not self._validations.are_awaited:
            return
        context = self._validations.context_for(stream.peek_hello())
        if context is not None:
            stream.change_context(context)
            self._validates = True

    def _take_plain(self, stream: TlsStream) -> None:
        """Give up TLS, and let the protocol refuse a client that speaks plain HTTP."""
        plain = stream.strip()
        self._stream, self._established = plain, True
        self._protocol.refuse_plain(plain.recv(4096))

    def _take_eof(self) -> None:
        if self._protocol.eof_received():
            self._wants_reading = False
            self._watch()
        else:
            self.close()

    def _flush(self) -> None:
        """Send what waits, as far as the socket accepts it."""
        if self._closing or self._lent:
            return
        if not self._established:  # the handshake waited for room in the socket
            self._read()
            return
        waiting = self._waiting
        try:
            while waiting:
                part = waiting[0]
                sent = self._stream.send(part)
                self._waiting_bytes -= sent
                if sent == len(part):
                    waiting.popleft()
                else:
                    waiting[0] = part[sent:]
        except BlockingIOError:
            self._watch()
            return
        except OSError as error:
            self._fail(error)
            return
        self._watch()
        if self._eof:
            self._shut_down()
        elif self._ends:
            self._lose(None)
        if self._paused_writer:
            self._paused_writer = False
            self._protocol.resume_writing()

    def _shut_down(self) -> None:
        stream = self._stream
        if isinstance(stream, TlsStream):
            self._stream = stream = stream.end() if self._established else stream.strip()
            self._established = True
        try:
            stream.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._closing:
            self._lose(error)

    def _lose(self, error: OSError | None, *, tells: bool = True) -> None:
        """Close, and notify the protocol soon; a borrowed socket is closed when it is returned.

        With `tells`, send TLS's ``close_notify``, so that the client does not see a broken
        connection.
        """
        self._closing = True
        self._watch()
        stream = self._stream
        if not self._lent:
            if tells and error is None and self._established and isinstance(stream, TlsStream):
                self._stream = stream = stream.end()
            stream.close()
        self._loop.call_soon(self._protocol.connection_lost, error)


class TlsAcceptor(asyncio.Protocol):
    """Takes an accepted connection from the loop's transport, and wraps it in a `TlsTransport`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: ServedTls,
        connect: Callable[[], TlsProtocol],
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._connect = connect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the socket."""
        theirs = transport.get_extra_info("socket")
        try:
            descriptor = os.dup(theirs.fileno())
        except OSError:  # there are too many
            return
        finally:
            cast("asyncio.Transport", transport).abort()  # it closes its descriptor; ours stays
        sock = socket.socket(theirs.family, socket.SOCK_STREAM, theirs.proto, fileno=descriptor)
        sock.setblocking(False)  # noqa: FBT003
        try:
            # uvloop would do so at its first write. Records wait for one another otherwise.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = self._tls
            TlsTransport(
                *(self._loop, sock, tls.context, self._connect(), tls.note_failure),
                tls.validations,
            )
        except OSError:  # the client has left
            sock.close()


def lend_socket(transport: asyncio.Transport) -> socket.socket | TlsLoan | None:
    """Return a duplicate of the socket for a bulk job, or None if the client has left.

    For TLS, return a loan of the connection itself: do not write to it before the job ends.
    """
    if transport.is_closing():
        return None
    if isinstance(transport, TlsTransport):
        return transport.lend()
    ours = transport.get_extra_info("socket")
    return socket.socket(ours.family, socket.SOCK_STREAM, ours.proto, fileno=os.dup(ours.fileno()))


def _peer_name(sock: socket.socket) -> Any:  # noqa: ANN401 - as the socket has it
    try:
        return sock.getpeername()
    except OSError:  # it has left
        return None
