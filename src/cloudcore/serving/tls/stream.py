"""TLS over a non-blocking socket, with the methods of a socket.

OpenSSL reads and writes the socket itself, and Python releases the interpreter's lock meanwhile. So
a bulk thread encrypts or decrypts beside the event loop, without another copy. A stream belongs to
one thread at a time: see `cloudcore.serving.tls.transport.TlsTransport.lend`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""Maximum bytes of content in one record (RFC 8446 §5.1)."""
_HEAD_BYTES: Final = 5
"""Size of a record's header: its type, version and length."""
MOST_PIECE_BYTES: Final = 128 * 1024
"""Bytes that OpenSSL encrypts in one call: eight records, one system call each."""


class TlsStream:
    """A TLS connection of a server, with the methods of a socket."""

    __slots__ = ("_awaited", "_ended", "_socket", "owed", "piece_bytes", "waits_to_write")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """Take over a connected, non-blocking socket; the handshake has not begun."""
        self._socket = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._ended = False
        self._awaited = 0
        self.waits_to_write = False
        """True if the last `BlockingIOError` was for lack of room in the socket, not of bytes."""
        self.piece_bytes = MOST_PIECE_BYTES
        """Maximum bytes that the next call of `send` takes. After a call that blocked, this is only
        one record: until a slow client has a whole piece, nobody knows how much of it has
        arrived."""
        self.owed = 0
        """Size of a partly sent piece; the next call of `send` must begin with its bytes."""

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, option, value)

    def begins_tls(self) -> bool | None:
        """Return True if the client's first byte begins a TLS hello; None if it disconnected.

        Raise `BlockingIOError` if there is no byte yet.
        """
        first = socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        return first == b"\x16" if first else None

    def peek_hello(self) -> bytes:
        """Return the client's hello without consuming it (only its first TLS record).

        Raise `BlockingIOError` if it has not arrived completely.
        """
        head = socket.socket.recv(self._socket, _HEAD_BYTES, socket.MSG_PEEK)
        size = _HEAD_BYTES
        if len(head) == _HEAD_BYTES:
            size += min(int.from_bytes(head[3:]), RECORD_BYTES)
        found = socket.socket.recv(self._socket, size, socket.MSG_PEEK)
        if len(found) < size and self._awaited < size:
            # Otherwise the loop would report the bytes that are already here again and again. It
            # reports the end of the connection sooner: then no more bytes come.
            self._awaited = size
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            raise BlockingIOError
        if self._awaited:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return found

    def change_context(self, context: ssl.SSLContext) -> None:
        """Use another context for the handshake, which must not have begun."""
        self._socket.context = context

    def shake_hands(self) -> None:
        """Continue the handshake.

        Raise `BlockingIOError` if the client must send more first, `ConnectionError` if the client
        left, or the two sides find no common parameters.
        """
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.waits_to_write = False
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.waits_to_write = True
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionAbortedError(error.reason or str(error)) from None

    @property
    def is_pending(self) -> bool:
        """Return True if the next read returns at once although the socket may not be readable.

        That happens for bytes that are already decrypted, and for an end that the previous read has
        seen, as the event loop may report a reset only once.
        """
        return self._ended or self._socket.pending() > 0

    def recv_into(self, buffer: memoryview | bytearray, count: int = 0) -> int:
        """Read up to `count` bytes, or a full buffer, from as many TLS records as have arrived.

        Return 0 at the end.

        Raise `BlockingIOError` if there are no bytes yet, `ConnectionError` if the connection is
        broken.
        """
        view = memoryview(buffer)
        if count:
            view = view[:count]
        done = 0
        try:
            while done < len(view):
                room = view[done:]
                # With a buffer, it returns a number.
                got = int(self._socket.read(len(room), room))
                if not got:
                    self._ended = True
                    break
                done += got
        except ssl.SSLWantReadError:
            self.waits_to_write = False
        except ssl.SSLWantWriteError:  # an answer to a change of keys
            self.waits_to_write = True
        except ssl.SSLError as error:
            if not done:
                raise ConnectionAbortedError(error.reason or str(error)) from None
            self._ended = True
        else:
            return done
        if not done:
            raise BlockingIOError
        return done

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send the first `piece_bytes` of `data`, or all if it is shorter; return the number sent.

        After `BlockingIOError`, `data` in the next call must begin with the same `owed` bytes,
        possibly in another buffer: OpenSSL has already encrypted some of them.

        Raise `BlockingIOError` if the socket has no room, `ConnectionError` if the connection is
        broken.
        """
        piece = memoryview(data)[: self.owed or self.piece_bytes]
        try:
            sent = self._socket.send(piece)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
            self.waits_to_write = isinstance(error, ssl.SSLWantWriteError)
            self.owed = len(piece)
            self.piece_bytes = RECORD_BYTES
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionAbortedError(error.reason or str(error)) from None
        self.owed = 0
        if self.piece_bytes < MOST_PIECE_BYTES:
            self.piece_bytes *= 2
        return sent

    def end(self) -> socket.socket:
        """Send ``close_notify``, unless a piece is owed; return the underlying socket."""
        if not self.owed:
            # This sends close_notify, then reads the client's own, for which it does not wait.
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
        return self.strip()

    def strip(self) -> socket.socket:
        """Give up TLS without telling the client; return the underlying socket."""
        below = self._socket
        return socket.socket(below.family, below.type, below.proto, fileno=below.detach())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class TlsLoan:
    """A TLS connection on loan to a bulk job; closing it, on the event loop, returns it."""

    __slots__ = ("_give_back", "stream")

    def __init__(self, stream: TlsStream, give_back: Callable[[], None]) -> None:
        self.stream = stream
        self._give_back = give_back

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self.stream.fileno()

    def close(self) -> None:
        """Return the connection to the transport."""
        self._give_back()
