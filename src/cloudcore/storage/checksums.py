"""The checksums of S3, besides the MD5 of the ETag.

A `FULL_OBJECT` checksum covers the bytes of the object. A `COMPOSITE` checksum covers the checksums
of the object's parts, and is followed by ``-`` and the number of parts. The CRC of an object can be
computed from the CRCs of its parts, without reading the bytes again.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha1, sha256
from typing import Literal, NamedTuple, Protocol

ChecksumType = Literal["FULL_OBJECT", "COMPOSITE"]


class Algorithm(StrEnum):
    """A checksum algorithm, by its name in S3."""

    CRC32 = "CRC32"
    CRC32C = "CRC32C"
    CRC64NVME = "CRC64NVME"
    SHA1 = "SHA1"
    SHA256 = "SHA256"

    @property
    def header(self) -> str:
        """Return the name of the header or trailer with the checksum, in lower case."""
        return f"x-amz-checksum-{self.value.lower()}"

    @property
    def digest_bytes(self) -> int:
        """Return the length of the algorithm's checksums in bytes."""
        return {"CRC32": 4, "CRC32C": 4, "CRC64NVME": 8, "SHA1": 20, "SHA256": 32}[self.value]

    @property
    def is_crc(self) -> bool:
        """Return True if checksums of parts can be combined (`combine`)."""
        return self.value.startswith("CRC")


class Checksum(Protocol):
    """A running checksum, with the interface of `hashlib`."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Continue with `data`."""

    def digest(self) -> bytes:
        """Return the checksum in network byte order."""


class Part(NamedTuple):
    """The checksum and the size of a part."""

    digest: bytes
    size: int


_Update = Callable[[bytes | memoryview, int], int]


class _Crc:
    def __init__(self, update: _Update, size: int) -> None:
        self._update = update
        self._size = size
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = self._update(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


def new_checksum(algorithm: Algorithm) -> Checksum:
    """Return a new running checksum of zero bytes."""
    if algorithm is Algorithm.SHA1:
        return sha1(usedforsecurity=False)
    if algorithm is Algorithm.SHA256:
        return sha256()
    if algorithm is Algorithm.CRC32:
        return _Crc(zlib.crc32, 4)
    # Imported on first use: the module takes 7 MB, and most workers never need it.
    from awscrt import checksums  # noqa: PLC0415

    if algorithm is Algorithm.CRC32C:
        return _Crc(checksums.crc32c, 4)
    return _Crc(checksums.crc64nvme, 8)


def encode(digest: bytes) -> str:
    """Encode a checksum in base64, as in headers and documents."""
    return b64encode(digest).decode("ascii")


def decode(algorithm: Algorithm, text: str) -> bytes | None:
    """Decode the checksum in a header or document; return None if it is malformed."""
    try:
        digest = b64decode(text, validate=True)
    except ValueError:
        return None
    return digest if len(digest) == algorithm.digest_bytes and encode(digest) == text else None


def composite(algorithm: Algorithm, parts: Iterable[Part]) -> str:
    """Return the checksum of the parts' checksums in base64, followed by ``-`` and their number."""
    outer = new_checksum(algorithm)
    count = 0
    for part in parts:
        outer.update(part.digest)
        count += 1
    return f"{encode(outer.digest())}-{count}"


def combine(algorithm: Algorithm, parts: Iterable[Part]) -> bytes:
    """Compute the CRC of the whole from the CRCs of its parts, which must be in order."""
    from awscrt import checksums  # noqa: PLC0415 - as above

    joined: Callable[[int, int, int], int] = {
        Algorithm.CRC32: checksums.combine_crc32,
        Algorithm.CRC32C: checksums.combine_crc32c,
        Algorithm.CRC64NVME: checksums.combine_crc64nvme,
    }[algorithm]
    whole = 0
    for part in parts:
        whole = joined(whole, int.from_bytes(part.digest, "big"), part.size)
    return whole.to_bytes(algorithm.digest_bytes, "big")
