"""Inline objects: blobs of a few KiB whose stored bytes are in a row of the database.

This module makes and reads the stored bytes. They are the same as in a file of the object: plain,
or sealed under its data key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from blake3 import blake3

from registry.blobstore.base import (
    PLAIN,
    SEALED,
    DataKey,
    ObjectDamaged,
    ObjectUnknown,
    OpenObject,
    Stored,
)
from registry.blobstore.reading import StoredBytes
from registry.blobstore.sealed.frame_format import sealed_bytes
from registry.blobstore.sealed.objects import unseal
from registry.blobstore.staging import check_size, checked_range
from registry.errors import DigestMismatch, StoreUnavailable
from registry.oci.digest import Digest, digest_of

_STORED_CHECKSUM: Final = "kept"
"""The name of the checksum (BLAKE3) among the algorithms in the result of `digests_of_sealed`."""


def store_inline(
    data: bytes,
    expected: Digest,
    object_id: str,
    data_key: DataKey | None = None,
    sealed: bytes | None = None,
) -> Stored:
    """Verify a whole blob against `expected`; return a new inline object, to be recorded.

    The stored bytes are `data`, or with a `data_key`, `data` sealed under it. `sealed` has the
    sealed bytes if the caller already has them.

    Raise `DigestMismatch` if the bytes hash to another digest.
    """
    digest = digest_of(data)
    alias = None if expected.algorithm == digest.algorithm else expected
    if (digest_of(data, expected.algorithm) if alias else digest) != expected:
        raise DigestMismatch("the bytes do not hash to the digest given", digest=str(expected))
    if data_key is None:
        return Stored(object_id, digest, alias, len(data), len(data), PLAIN, body=data)
    body = sealed_bytes(data, data_key, object_id) if sealed is None else sealed
    checksum = blake3(body).hexdigest()
    return Stored(object_id, digest, alias, len(data), len(body), SEALED, checksum, body)


class SealedUpload(NamedTuple):
    """Sealed bytes of a small upload, to become an inline object once their digest is known."""

    sealed: bytes
    wrapped_data_key: bytes
    object_id: str
    size: int
    """The number of bytes as the client sent them."""


def digests_of_sealed(kept: SealedUpload, data: bytes, algorithm: str | None) -> dict[str, str]:
    """Return the hex digests that `adopt_inline` needs, by algorithm.

    They are the digests of `data`, by sha256 and the `algorithm` that the client announced, and a
    checksum of the sealed bytes.
    """
    names = {"sha256", algorithm or "sha256"}
    digests = {name: digest_of(data, name).partition(":")[2] for name in names}
    return digests | {_STORED_CHECKSUM: _checksum(kept, digests["sha256"])}


def adopt_inline(kept: SealedUpload, digests: Mapping[str, str], expected: Digest) -> Stored | None:
    """Return sealed bytes as a new inline object, to be recorded, without decrypting them.

    `digests` come from `digests_of_sealed`. Return None if they do not prove that the bytes are
    unchanged and have the expected digest: then the bytes must be decrypted and hashed.
    """
    sha256 = digests.get("sha256", "")
    if digests.get(_STORED_CHECKSUM) != _checksum(kept, sha256):
        return None
    if expected != f"{expected.algorithm}:{digests.get(expected.algorithm)}":
        return None
    digest = Digest.parse(f"sha256:{sha256}")
    alias = None if expected.algorithm == digest.algorithm else expected
    body, object_id = kept.sealed, kept.object_id
    checksum = blake3(body).hexdigest()
    return Stored(object_id, digest, alias, kept.size, len(body), SEALED, checksum, body)


def _checksum(kept: SealedUpload, sha256: str) -> str:
    fields = f"{kept.object_id} {kept.size} {sha256} {len(kept.wrapped_data_key)} ".encode()
    return blake3(fields + kept.wrapped_data_key + kept.sealed).hexdigest()


def check_inline(body: bytes | None, stored_id: str, stored_size: int) -> None:
    """Check that the stored bytes of an inline object exist and have the right size.

    Raise `ObjectUnknown` if the bytes are lost, `ObjectDamaged` if there are more or fewer than
    `stored_size`.
    """
    if body is None:
        raise ObjectUnknown(stored_id)
    check_size(len(body), stored_size)


def open_inline(
    body: bytes | None, stored_id: str, size: int | None = None, data_key: DataKey | None = None
) -> InlineObject:
    """Open an inline object from its stored bytes `body`; a sealed object needs its data key.

    All bytes are decrypted here, so that damage is found before any byte is sent.

    Raise `ObjectUnknown` if `body` is None (lost), `ObjectDamaged` if the object does not have
    `size` bytes, was not sealed with this key for this object, or was changed.
    """
    if body is None:
        raise ObjectUnknown(stored_id)
    if data_key is not None:
        try:
            body = b"".join(unseal(_Body(body), stored_id, size, data_key).chunks())
        except StoreUnavailable as error:
            raise ObjectDamaged(error.message) from error
    check_size(len(body), size)
    return InlineObject(body)


class InlineObject(OpenObject):
    """A small object whose bytes, as pushed, are in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return len(self._data)

    def file_region(self, start: int = 0, stop: int | None = None) -> None:
        """Return None: the bytes are in no file."""
        checked_range(start, stop, len(self._data))

    def in_memory(self, start: int = 0, stop: int | None = None) -> bytes:
        """Return the bytes of a range."""
        begin, end = checked_range(start, stop, len(self._data))
        return self._data[begin:end]

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield the whole range as one chunk."""
        begin, end = checked_range(start, stop, len(self._data))
        if begin < end:
            yield memoryview(self._data)[begin:end]

    async def stream(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield the whole range as one chunk."""
        part = self.in_memory(start, stop)
        if part:
            yield part

    async def aclose(self) -> None:
        """Do nothing."""


class _Body(StoredBytes):
    """The stored bytes of an inline object, to be unsealed."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self.length = len(body)

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        yield self._body[offset:end]

    def read_into(self, view: memoryview, offset: int, *, wait: bool = True) -> bool:  # noqa: ARG002
        """Fill `view`; return False if there are too few bytes."""
        part = self._body[offset : offset + len(view)]
        view[: len(part)] = part
        return len(part) == len(view)


if TYPE_CHECKING:
    _: type[OpenObject] = InlineObject
