"""Bodies of requests: receive them, and compare them with their announced hashes."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Mapping
from hashlib import md5, sha256
from typing import Final, NamedTuple, TypeVar

from cloudcore.serving.asgi import receive_into
from cloudcore.storage import checksums
from cloudcore.storage.checksums import Algorithm
from cloudcore.storage.object_writes import Digests, Terms
from cloudcore.storage.s3 import documents
from cloudcore.storage.s3.call import S3Call
from cloudcore.storage.s3.chunked import ChunkDecoder
from cloudcore.storage.s3.documents import PORTION, Incoming
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.object_headers import acl_refusal, check_supported
from cloudcore.storage.s3.signature import CHUNKED, SIGNED_CHUNKS, UNSIGNED, UNSIGNED_CHUNKS_TRAILER

T = TypeVar("T")

MAX_DOCUMENT_BYTES: Final = 2 * 1024 * 1024
"""Enough for 1,000 keys of 1,024 bytes, or 10,000 parts with checksums."""
USUAL_DOCUMENT_BYTES: Final = 64 * 1024
_CHUNKED_OVERHEAD: Final = 64 * 1024
_MAX_DROPPED_BYTES: Final = 16 * 1024 * 1024
_BY_HEADER: Final = {algorithm.header: algorithm for algorithm in Algorithm}
_CHECKSUM: Final = "x-amz-checksum-"
_NO_CHECKSUMS: Final = tuple(_CHECKSUM + each for each in ("algorithm", "mode", "type"))
_MD5_BYTES: Final = 16


class AnnouncedValues(NamedTuple):
    """The size, hashes and checksum that a request announces for its bytes."""

    length: int | None
    """In bytes; None for the file of a form, whose length the form does not state."""
    sha256: str | None
    """In hex; None if the bytes are signed in chunks or unsigned."""
    md5: str | None
    """In hex."""
    algorithm: Algorithm | None
    """The algorithm of the checksum; None if there is no checksum."""
    checksum: str | None
    """The checksum in a header; None if a trailer has the checksum, or there is none."""
    trailer: Algorithm | None
    """The algorithm, if a trailer has the checksum; else None."""

    def check(self, digests: Digests, trailers: Mapping[str, str]) -> None:
        """Compare received bytes, and the received trailers, with the announced values.

        Raise `S3Error` if size, SHA-256, MD5 or checksum differs.
        """
        if self.length is not None and digests.size != self.length:
            raise S3Error("IncompleteBody", "The body is not of the length that was declared.")
        if self.sha256 is not None and digests.sha256 != self.sha256:
            raise S3Error(
                "XAmzContentSHA256Mismatch",
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
                details={"S3ComputedContentSHA256": digests.sha256},
            )
        if self.md5 is not None and digests.md5 != self.md5:
            raise S3Error("BadDigest", "The Content-MD5 you specified did not match the body.")
        expected = self.checksum
        if self.trailer is not None:
            expected = trailers.get(self.trailer.header)
            if expected is None or checksums.decode(self.trailer, expected) is None:
                raise _bad_checksum(self.trailer)
        if expected is not None and expected != digests.checksum:
            assert self.algorithm is not None
            raise S3Error(
                "BadDigest",
                f"The {self.algorithm.value} you specified did not match the calculated checksum.",
            )


class S3Body:
    """The body of a call, as an argument for `object_writes`."""

    def __init__(self, call: S3Call) -> None:
        """Read the announced values from the headers.

        Raise `S3Error` if they contradict each other, are malformed, or lack a length.
        """
        self._call = call
        self.promise = read_announced(call)
        self._trailers: Mapping[str, str] = {}

    def terms(self) -> Terms:
        """Return the announced size, the checksum to compute, and the check of received bytes."""
        return Terms(
            self.promise.length,
            self.promise.algorithm,
            lambda digests: self.promise.check(digests, self._trailers),
        )

    async def __call__(
        self, sink: Callable[[memoryview], None], finish: Callable[[bool], T], /
    ) -> T:
        """Move the unframed content to `sink` in a bulk thread; return the result of `finish`."""
        call = self._call
        if call.claim.payload not in CHUNKED:
            return await receive_into(call.scope, call.receive, sink, finish)
        decoder = _decoder(call, self.promise, sink)

        def end(is_complete: bool) -> T:  # noqa: FBT001 - the signature of a body's end
            if is_complete:
                decoder.finish()
                self._trailers = decoder.trailers
            return finish(is_complete)

        return await receive_into(call.scope, call.receive, decoder.write, end)


def read_announced(
    call: S3Call, *, of_object: bool = False, is_empty: bool = False
) -> AnnouncedValues:
    """Return the announced values of a request's body.

    With `of_object`, checksum headers describe the object that the request makes, not the body.
    With `is_empty`, there is no body, so headers about its framing are ignored.

    Raise `S3Error` if the values contradict each other, are malformed, or lack a length.
    """
    algorithm, checksum = (None, None) if of_object else header_checksum(call)
    trailer = None if is_empty else _trailer(call)
    if trailer is not None and checksum is not None:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header or trailer")
    named = None if is_empty else call.header("x-amz-sdk-checksum-algorithm")
    if named is not None:
        wanted = read_algorithm(named)
        algorithm = algorithm or wanted
        if (trailer or algorithm) is not wanted:
            raise S3Error("BadDigest", "x-amz-sdk-checksum-algorithm names another algorithm.")
    payload = call.claim.payload
    return AnnouncedValues(
        0 if is_empty else _length(call),
        None if payload == UNSIGNED or payload in CHUNKED else payload,
        content_md5(call.header("content-md5")),
        trailer or algorithm,
        checksum,
        trailer,
    )


async def read_large(call: S3Call, incoming: Incoming[T], *, checksum_of_object: bool = False) -> T:
    """Parse a document, possibly a large one, while it arrives, and return its content.

    With `checksum_of_object`, checksum headers are not about the document. Raise `S3Error` as
    `read_document` does, or if `incoming` refuses the document.
    """
    reader = incoming.reader
    try:
        await _receive(call, MAX_DOCUMENT_BYTES, reader.feed, of_object=checksum_of_object)
        return incoming.finish()
    finally:
        reader.close()


async def read_document(call: S3Call) -> bytes:
    """Return the body of a request, a document of at most `USUAL_DOCUMENT_BYTES`.

    Raise `S3Error` if it is too long, incomplete, or differs from the announced values.
    """
    content = bytearray()
    await _receive(call, USUAL_DOCUMENT_BYTES, content.extend)
    return bytes(content)


async def _receive(
    call: S3Call, most: int, take: Callable[[memoryview], object], *, of_object: bool = False
) -> None:
    """Pass the content of a document of at most `most` bytes to `take`, and verify it.

    With `of_object`, checksum headers are not about the document. After a document is refused, up
    to `_MAX_DROPPED_BYTES` more are received: a client that is still sending may not read the
    answer.
    """
    received = _Received(call, take, of_object=of_object)
    is_chunked = call.claim.payload in CHUNKED
    limit = most + (_CHUNKED_OVERHEAD if is_chunked else 0)
    size, more, refused = 0, True, None
    while more:
        message = await call.receive()
        if message["type"] == "http.disconnect":
            raise refused or S3Error("IncompleteBody", "The body did not arrive whole.")
        part, more = memoryview(message.get("body", b"")), message.get("more_body", False)
        size += len(part)
        if size > limit:
            refused = refused or S3Error("EntityTooLarge", "The document is too long.")
            if size > limit + _MAX_DROPPED_BYTES:
                break
        for start in range(0, len(part), PORTION):
            if refused is not None:
                break
            async with call.portions:  # one document at a time, so that others wait for one
                try:
                    received.take(part[start : start + PORTION])
                except S3Error as error:
                    refused = error
                await asyncio.sleep(0)
    if refused is not None:
        raise refused
    received.finish()


class _Received:
    """Unframes and hashes a document that is being received."""

    def __init__(
        self, call: S3Call, take: Callable[[memoryview], object], *, of_object: bool
    ) -> None:
        is_empty = _is_empty(call)
        self._promise = read_announced(call, of_object=of_object, is_empty=is_empty)
        algorithm = self._promise.algorithm
        self._checksum = None if algorithm is None else checksums.new_checksum(algorithm)
        self._md5, self._sha256 = md5(usedforsecurity=False), sha256()
        self._size = 0
        self._pass_on = take
        self._decoder: ChunkDecoder | None = None
        if not is_empty and call.claim.payload in CHUNKED:
            self._decoder = _decoder(call, self._promise, self._add)

    def take(self, part: memoryview) -> None:
        """Unframe and hash the next bytes of the body."""
        if self._decoder is None:
            self._add(part)
        else:
            self._decoder.write(part)

    def finish(self) -> None:
        """Compare the document with the announced values; raise `S3Error` if they differ."""
        trailers: Mapping[str, str] = {}
        if self._decoder is not None:
            self._decoder.finish()
            trailers = self._decoder.trailers
        shown = None if self._checksum is None else checksums.encode(self._checksum.digest())
        hashes = self._md5.hexdigest(), self._sha256.hexdigest()
        self._promise.check(Digests(self._size, *hashes, shown), trailers)

    def _add(self, content: memoryview) -> None:
        self._size += len(content)
        self._md5.update(content)
        self._sha256.update(content)
        if self._checksum is not None:
            self._checksum.update(content)
        self._pass_on(content)


def _is_empty(call: S3Call) -> bool:
    """Return True if the request has no body (RFC 9112 section 6.3)."""
    length = call.header("content-length")
    return length == "0" or (length is None and call.header("transfer-encoding") is None)


async def check_acl(call: S3Call) -> None:
    """Refuse an access control list, in headers or a document, other than the owner's full control.

    Raise `S3Error` (AccessControlListNotSupported, or as `read_document`).
    """
    check_supported(call.request.headers, call.account_id)
    body = await read_document(call)
    if body and not documents.is_private_acl(body, call.account_id):
        raise acl_refusal()


def _decoder(
    call: S3Call, promise: AnnouncedValues, sink: Callable[[memoryview], None]
) -> ChunkDecoder:
    trailers = frozenset() if promise.trailer is None else frozenset((promise.trailer.header,))
    assert promise.length is not None, "the file of a form is not framed"
    is_unsigned = call.claim.payload == UNSIGNED_CHUNKS_TRAILER
    key = None if is_unsigned else call.key
    return ChunkDecoder(sink, promise.length, key=key, trailers=trailers)


def _length(call: S3Call) -> int:
    name = "content-length"
    if call.claim.payload in CHUNKED:
        name = "x-amz-decoded-content-length"
    length = call.header(name)
    if length is None:
        raise S3Error("MissingContentLength", f"You must provide the {name} HTTP header.")
    if not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise S3Error("InvalidArgument", f"{name} must be a number of bytes.")
    return int(length)


def content_md5(header: str | None) -> str | None:
    """Return a ``Content-MD5`` in hex, or None if absent; raise `S3Error` if it is malformed."""
    if header is None:
        return None
    try:
        digest = b64decode(header, validate=True)
    except ValueError:
        digest = b""
    if len(digest) != _MD5_BYTES:
        raise S3Error("InvalidDigest", "The Content-MD5 you specified is not valid.")
    return digest.hex()


def header_checksum(call: S3Call) -> tuple[Algorithm | None, str | None]:
    """Return (algorithm, value) of the checksum in a header, or (None, None).

    Raise `S3Error` if there are several checksums, or the checksum is malformed.
    """
    algorithm, value = _named_checksum(call)
    if algorithm is not None and checksums.decode(algorithm, value) is None:
        raise _bad_checksum(algorithm)
    return algorithm, value or None


def read_whole_checksum(call: S3Call) -> tuple[str, str] | None:
    """Return (algorithm, value) of the object's checksum in a completion's headers, or None.

    Raise `S3Error` if there are several checksums, or one that is malformed or of an unknown
    algorithm.
    """
    algorithm, value = _named_checksum(call)
    if algorithm is None:
        return None
    digest, dash, count = value.partition("-")
    if checksums.decode(algorithm, digest) is None or (dash and not count.isdigit()):
        raise _bad_checksum(algorithm)
    return algorithm.value, value


def refuse_checksum(call: S3Call) -> None:
    """Raise `S3Error` if a copy has a checksum header: the client does not send the bytes."""
    if _named_checksum(call)[0] is not None:
        raise S3Error("InvalidRequest", "A copy has no x-amz-checksum- header.")


def _named_checksum(call: S3Call) -> tuple[Algorithm | None, str]:
    """Return (algorithm, value) of the only checksum header, or (None, "")."""
    given = [
        name
        for name in call.request.headers
        if name.startswith(_CHECKSUM) and name not in _NO_CHECKSUMS
    ]
    if not given:
        return None, ""
    if len(given) > 1:
        raise S3Error("InvalidRequest", "Expecting a single x-amz-checksum- header.")
    algorithm = _BY_HEADER.get(given[0])
    if algorithm is None:
        raise S3Error("InvalidRequest", f"The checksum {given[0][:64]} is not supported.")
    return algorithm, call.request.headers[given[0]]


def _trailer(call: S3Call) -> Algorithm | None:
    named = call.header("x-amz-trailer")
    if named is None:
        return None
    if call.claim.payload not in CHUNKED or call.claim.payload == SIGNED_CHUNKS:
        raise S3Error("InvalidRequest", "x-amz-content-sha256 says that no trailer comes.")
    algorithm = _BY_HEADER.get(named.lower())
    if algorithm is None:
        raise S3Error("InvalidRequest", "The value specified in the x-amz-trailer is not supported")
    return algorithm


def read_algorithm(name: str) -> Algorithm:
    """Return the algorithm with this name; raise `S3Error` if there is none."""
    try:
        return Algorithm(name.upper())
    except ValueError:
        raise S3Error("InvalidRequest", "Checksum algorithm provided is unsupported.") from None


def _bad_checksum(algorithm: Algorithm) -> S3Error:
    return S3Error("InvalidRequest", f"Value for {algorithm.header} header is invalid.")
