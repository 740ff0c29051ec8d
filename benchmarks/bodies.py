"""Unique upload bodies whose digests cost no hashing during a measurement.

All bodies of a size have the same prefix; their last block ends in a unique number. The hash of the
prefix is computed once and copied, so the digest of another unique gigabyte takes two microseconds.
The prefix repeats a random pattern, which is in memory files twice: plain, and as the chunks of a
chunked request, so that ``sendfile`` can send both without a copy.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from benchmarks.wire import Connection

if TYPE_CHECKING:
    from _hashlib import HASH

BLOCK_BYTES = 32 << 10  # the chunk that Docker's client writes
PATTERN_BLOCKS = 2048
NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Body:
    """A unique body: `prefix_blocks` of the pattern, then `last_block`."""

    size_bytes: int
    prefix_blocks: int
    last_block: bytes
    digest: str


class BodyMaker:
    """Make unique bodies and send them. Safe for threads."""

    def __init__(self) -> None:
        self._pattern = os.urandom(BLOCK_BYTES * PATTERN_BLOCKS)
        blocks = range(0, len(self._pattern), BLOCK_BYTES)
        framed = b"".join(chunk(self._pattern[at : at + BLOCK_BYTES]) for at in blocks)
        self._plain_file = _memory_file("plain", self._pattern)
        self._framed_file = _memory_file("framed", framed)
        self._framed_block_bytes = len(framed) // PATTERN_BLOCKS
        self._run = os.urandom(NONCE_BYTES // 2)
        self._numbers = itertools.count()
        self._hashed = {0: sha256()}

    def prepare(self, size_bytes: int) -> None:
        """Hash the common prefix of bodies of `size_bytes`, before the first push needs it."""
        self._prefix_hash(size_bytes)

    def make(self, size_bytes: int) -> Body:
        """Return a new unique body of `size_bytes`."""
        nonce = self._run + next(self._numbers).to_bytes(NONCE_BYTES // 2)
        prefix_blocks, last = divmod(size_bytes - 1, BLOCK_BYTES)
        last_block = self._pattern[: last + 1 - NONCE_BYTES] + nonce
        running = self._prefix_hash(size_bytes).copy()
        running.update(last_block)
        return Body(size_bytes, prefix_blocks, last_block, f"sha256:{running.hexdigest()}")

    def send_plain(self, connection: Connection, request: bytes, body: Body) -> None:
        """Send `request` and `body` with a ``Content-Length``."""
        if not body.prefix_blocks:
            connection.send(request + body.last_block)
            return
        connection.send(request, more=True)
        self._send_prefix(connection, self._plain_file, BLOCK_BYTES, body)
        connection.send(body.last_block)

    def send_chunked(self, connection: Connection, request: bytes, body: Body) -> None:
        """Send `request` and `body` in chunks, as clients do if they do not know the length."""
        ending = chunk(body.last_block) + chunk(b"")
        if not body.prefix_blocks:
            connection.send(request + ending)
            return
        connection.send(request, more=True)
        self._send_prefix(connection, self._framed_file, self._framed_block_bytes, body)
        connection.send(ending)

    def _send_prefix(
        self, connection: Connection, descriptor: int, block_bytes: int, body: Body
    ) -> None:
        remaining = body.prefix_blocks
        while remaining:
            blocks = min(remaining, PATTERN_BLOCKS)
            connection.send_file(descriptor, blocks * block_bytes)
            remaining -= blocks

    def _prefix_hash(self, size_bytes: int) -> HASH:
        blocks = (size_bytes - 1) // BLOCK_BYTES
        if blocks not in self._hashed:
            whole, rest = divmod(blocks, PATTERN_BLOCKS)
            running = sha256()
            for _ in range(whole):
                running.update(self._pattern)
            running.update(self._pattern[: rest * BLOCK_BYTES])
            self._hashed[blocks] = running
        return self._hashed[blocks]


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body (RFC 9112 §7.1); no data ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _memory_file(name: str, content: bytes) -> int:
    descriptor = os.memfd_create(name)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    return descriptor
