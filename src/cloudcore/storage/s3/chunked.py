"""The content encoding ``aws-chunked``: framing within a body, with signatures and trailers.

Format::

    size;chunk-signature=… CRLF data CRLF … the last chunk has size 0; then trailers, and CRLF

Each chunk's signature covers the previous signature, beginning with the request's, and the trailers
are signed after the last chunk. Without signatures (``STREAMING-UNSIGNED-PAYLOAD-TRAILER``) there
are only the sizes. Source: "Signature calculations for the Authorization header: Transferring
payload in multiple chunks" and "Including trailing headers" of the S3 API reference.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.signature import EMPTY_SHA256, RequestSigningKey

Sink = Callable[[memoryview], None]

MAX_LINE: Final = 1024
MAX_TRAILERS: Final = 8
CHUNK_BYTES: Final = 1024
"""Bytes of content that a chunk should have. The bytes that smaller chunks lack are added up, and
the body is refused when the sum exceeds `MAX_CHARGE`; larger chunks reduce the sum."""
MAX_CHARGE: Final = 1024 * 1024
_CHUNK: Final = "AWS4-HMAC-SHA256-PAYLOAD"
_TRAILER: Final = "AWS4-HMAC-SHA256-TRAILER"
_TRAILER_SIGNATURE: Final = "x-amz-trailer-signature"
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,12})")
_SIGNED_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,12});chunk-signature=([0-9a-f]{64})")
_TRAILER_LINE: Final = re.compile(r"([a-zA-Z0-9-]{1,64}):([\x21-\x7e]{1,256})")


class ChunkDecoder:
    """Passes the content of a body to a sink, without its framing.

    The body may arrive in pieces of any size. Content reaches the sink before the signature of its
    chunk is checked, so it must not be used before `finish` has returned.
    """

    def __init__(
        self,
        sink: Sink,
        length: int,
        *,
        key: RequestSigningKey | None = None,
        trailers: frozenset[str] = frozenset(),
    ) -> None:
        """Expect `length` bytes of content, and exactly these `trailers`, in lower case.

        With a `key`, all chunks must be signed, and so must the trailers, if any are expected.
        """
        self.trailers: dict[str, str] = {}
        """The received trailers; complete once `finish` has returned."""
        self._sink = sink
        self._missing = length
        self._key = key
        self._expected = trailers
        self._line = b""
        self._left = 0
        """Bytes of the current chunk that have not arrived yet."""
        self._read: Callable[[memoryview], memoryview] = self._read_size
        self._previous = key.seed if key is not None else ""
        self._signature = ""
        self._hash = sha256()
        self._signed_trailers = b""
        self._trailer_signature: str | None = None
        self._ended = False
        self._charge = 0

    def write(self, data: memoryview) -> None:
        """Decode the next bytes of the body.

        Raise `S3Error` if the framing is broken, or the signature of a chunk or of the trailers is
        wrong.
        """
        while data:
            data = self._read(data)

    def finish(self) -> None:
        """End the body; raise `S3Error` if it is not complete."""
        if not self._ended or self._missing:
            raise S3Error("IncompleteBody", "The body ended before its last chunk.")

    def _read_line(self, data: memoryview) -> tuple[bytes | None, memoryview]:
        """Return (the next line without its end, the rest); the line is None if incomplete.

        Raise `S3Error` if the line is too long, or does not end in CRLF.
        """
        room = MAX_LINE - len(self._line)
        head = bytes(data[:room])
        end = head.find(b"\n")
        if end < 0:
            if len(data) >= room:
                raise _malformed("a line is too long")
            self._line += head
            return None, data[len(data) :]
        line, self._line = self._line + head[:end], b""
        if not line.endswith(b"\r"):
            raise _malformed("a line does not end in CRLF")
        return line[:-1], data[end + 1 :]

    def _read_size(self, data: memoryview) -> memoryview:
        line, rest = self._read_line(data)
        if line is None:
            return rest
        found = (_SIZE if self._key is None else _SIGNED_SIZE).fullmatch(line)
        if found is None:
            raise _malformed("a chunk has no size, or no signature")
        self._left = int(found[1], 16)
        if self._left > self._missing:
            raise S3Error(
                "IncompleteBody", "The chunks are longer than x-amz-decoded-content-length."
            )
        self._charge = max(0, self._charge + CHUNK_BYTES - self._left)
        if self._charge > MAX_CHARGE:
            raise _malformed("there are too many small chunks")
        if self._key is not None:
            self._signature = found[2].decode()
            self._hash = sha256()
        if self._left:
            self._read = self._read_content
            return rest
        self._check_chunk()
        self._read = self._read_trailer
        return rest

    def _read_content(self, data: memoryview) -> memoryview:
        part = data[: self._left]
        if self._key is not None:
            self._hash.update(part)
        self._sink(part)
        self._left -= len(part)
        self._missing -= len(part)
        if not self._left:
            self._check_chunk()
            self._read = self._read_end_of_chunk
        return data[len(part) :]

    def _read_end_of_chunk(self, data: memoryview) -> memoryview:
        line, rest = self._read_line(data)
        if line is not None:
            if line:
                raise _malformed("a chunk is longer than its size")
            self._read = self._read_size
        return rest

    def _read_trailer(self, data: memoryview) -> memoryview:
        line, rest = self._read_line(data)
        if line is None:
            return rest
        if not line:
            self._end_trailers()
            return rest
        if len(self.trailers) >= MAX_TRAILERS:
            raise _malformed("there are too many trailers")
        found = _TRAILER_LINE.fullmatch(line.decode("latin-1"))
        if found is None:
            raise _malformed("a trailer is malformed")
        name, value = found[1].lower(), found[2]
        if name == _TRAILER_SIGNATURE and self._trailer_signature is None and self._key is not None:
            self._trailer_signature = value
        elif name in self._expected and name not in self.trailers:
            if self._trailer_signature is not None:
                raise _malformed("a trailer follows the signature of the trailers")
            self.trailers[name] = value
            self._signed_trailers += f"{name}:{value}\n".encode()
        else:
            raise _malformed(f"the trailer {name} is not named in x-amz-trailer, or comes twice")
        return rest

    def _end_trailers(self) -> None:
        if self._expected != self.trailers.keys():
            raise _malformed("a trailer that x-amz-trailer names is missing")
        if self._key is not None and self._expected:
            digest = sha256(self._signed_trailers).hexdigest()
            self._check(_TRAILER, digest, self._trailer_signature or "")
        elif self._trailer_signature is not None:
            raise _malformed("there is a signature of trailers, but no trailer")
        self._ended = True
        self._read = _refuse_more

    def _check_chunk(self) -> None:
        if self._key is not None:
            self._check(_CHUNK, f"{EMPTY_SHA256}\n{self._hash.hexdigest()}", self._signature)
            self._previous = self._signature

    def _check(self, kind: str, digests: str, signature: str) -> None:
        """Verify the signature of `digests`, which also covers the previous signature."""
        key = self._key
        assert key is not None
        expected = key.sign(f"{kind}\n{key.timestamp}\n{key.scope}\n{self._previous}\n{digests}")
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            raise S3Error(
                "SignatureDoesNotMatch", "The signature of a chunk or of the trailers is wrong."
            )


def _refuse_more(data: memoryview) -> memoryview:  # noqa: ARG001
    raise _malformed("bytes follow the last chunk")


def _malformed(what: str) -> S3Error:
    return S3Error("IncompleteBody", f"The body is not in the form aws-chunked: {what}.")
