"""The format of sealed objects: a header, then frames, each of which is encrypted separately.

Functions over buffers, without files. ``docs/reference/sealed-format.md`` describes the bytes, with
test vectors, so that another program can read them.
"""

from __future__ import annotations

import hmac
import os
import struct
from enum import IntEnum
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from registry.blobstore.base import DataKey

FRAME_BYTES: Final = 1 << 20
"""Bytes of an object in each frame but the last, which has fewer, possibly none."""
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
OVERHEAD: Final = NONCE_BYTES + TAG_BYTES
"""Bytes by which a sealed frame is longer than its plaintext."""
SLOT_BYTES: Final = FRAME_BYTES + OVERHEAD
"""Distance between the starts of two frames that are not packed."""

_MAGIC: Final = b"ENTREPOT"
_VERSION: Final = 1
_AES_256_GCM: Final = 1
_NOT_COMPRESSED: Final = 0
_ZSTD: Final = 1
_FIXED: Final = _MAGIC + bytes((_VERSION, _AES_256_GCM, _NOT_COMPRESSED, 20))
_FIXED_PACKED: Final = _MAGIC + bytes((_VERSION, _AES_256_GCM, _ZSTD, 20))
_COMPRESSION_AT: Final = 10
_SALT_BYTES: Final = 32
_COMMITMENT_BYTES: Final = 32
HEADER_BYTES: Final = len(_FIXED) + _SALT_BYTES + _COMMITMENT_BYTES
_BLOCK_BYTES: Final = 64
"""The block size of SHA-256, for HMAC."""
_INNER: Final = bytes(number ^ 0x36 for number in range(256))
_OUTER: Final = bytes(number ^ 0x5C for number in range(256))
_LABEL: Final = b"Entrepot sealed object"
_ASSOCIATED: Final = struct.Struct(">BQI")
_LARGE_BYTES: Final = 128 * 1024
"""Size from which a frame is encrypted by `Cipher`, which lets other threads run meanwhile.

`AESGCM.encrypt_into` holds the interpreter's lock, for 0.1 ms per MiB, but is 8 µs faster.
`AESGCM.decrypt_into` does not hold the lock.
"""


class FrameKind(IntEnum):
    """The kind of a frame; its value is part of the associated data (AEAD)."""

    WHOLE = 1
    """`FRAME_BYTES` of an object; others follow."""
    LAST = 2
    """The end of an object: fewer than `FRAME_BYTES`."""
    PARTIAL = 3
    """The beginning of a frame of staged bytes; objects have none."""
    WHOLE_ZSTD = 4
    """As `WHOLE`, but compressed."""
    LAST_ZSTD = 5
    """As `LAST`, but compressed."""
    TABLE = 6
    """A block of the table of frames of a packed object (`registry.blobstore.sealed.table`)."""


class SealBroken(Exception):
    """A header or frame was made for another object or with another key, or was changed."""


def frame_offset(number: int) -> int:
    """Return the offset of a frame in the stored bytes, if frames are not packed."""
    return HEADER_BYTES + number * SLOT_BYTES


def sealed_size(size: int) -> int:
    """Return the number of stored bytes of a sealed object of `size` bytes that is not packed."""
    number, rest = divmod(size, FRAME_BYTES)
    return frame_offset(number) + rest + OVERHEAD


def unsealed_size(stored_size: int) -> int:
    """Return the size of a sealed object, which is not packed, from its number of stored bytes.

    Raise `SealBroken` if no such object has this number of bytes.
    """
    number, rest = divmod(stored_size - HEADER_BYTES, SLOT_BYTES)
    if number < 0 or rest < OVERHEAD:
        raise SealBroken(f"no sealed object has {stored_size} bytes")
    return number * FRAME_BYTES + rest - OVERHEAD


class FrameCipher:
    """Seals and opens the frames of one object. May be used by several threads."""

    __slots__ = ("_aead", "_frame_key", "header", "is_packed")

    def __init__(self, header: bytes, frame_key: bytes) -> None:
        self.header: Final = header
        self.is_packed: Final = says_packed(header)
        """True if the frames may be compressed, and lie one after another."""
        self._aead = AESGCM(frame_key)
        self._frame_key = frame_key

    @classmethod
    def new(cls, data_key: DataKey, object_id: str, *, is_packed: bool = False) -> FrameCipher:
        """Return the cipher of a new object, with a new header."""
        return cls(*_new_header(data_key, object_id, _FIXED_PACKED if is_packed else _FIXED))

    @classmethod
    def of_header(cls, header: bytes, data_key: DataKey, object_id: str) -> FrameCipher:
        """Return the cipher of stored bytes that begin with `header`.

        Raise `SealBroken` if the header has an unknown version, was changed, or was made with
        another key or for another object.
        """
        if len(header) != HEADER_BYTES or not header.startswith((_FIXED, _FIXED_PACKED)):
            raise SealBroken("the header is not one of a sealed object of format 1")
        fixed, salt = header[: len(_FIXED)], header[len(_FIXED) : len(_FIXED) + _SALT_BYTES]
        frame_key, commitment = _derive(data_key, object_id, fixed, salt)
        if not hmac.compare_digest(header[-_COMMITMENT_BYTES:], commitment):
            raise SealBroken("the header was made with another key or for another object")
        return cls(header, frame_key)

    def seal(
        self, kind: FrameKind, number: int, plaintext: memoryview | bytes, out: memoryview
    ) -> int:
        """Write the sealed frame to `out` under a new nonce; return its length."""
        end = len(plaintext) + OVERHEAD
        nonce = os.urandom(NONCE_BYTES)
        out[:NONCE_BYTES] = nonce
        associated = _ASSOCIATED.pack(kind, number, len(plaintext))
        if len(plaintext) < _LARGE_BYTES:
            self._aead.encrypt_into(nonce, plaintext, associated, out[NONCE_BYTES:end])
            return end
        encryptor = Cipher(AES(self._frame_key), GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(associated)
        encryptor.update_into(plaintext, out[NONCE_BYTES : end - TAG_BYTES])
        encryptor.finalize()
        out[end - TAG_BYTES : end] = encryptor.tag
        return end

    def open(self, kind: FrameKind, number: int, sealed: memoryview, out: memoryview) -> memoryview:
        """Decrypt a sealed frame into `out`; return the part of `out` that has the plaintext.

        Raise `SealBroken` if `sealed` is another frame, or was changed; `out` is then undefined.
        """
        size = len(sealed) - OVERHEAD
        if size < 0:
            raise SealBroken("a frame is too short")
        associated = _ASSOCIATED.pack(kind, number, size)
        found = out[:size]
        try:
            self._aead.decrypt_into(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated, found)
        except InvalidTag:
            raise SealBroken(f"frame {number} does not open") from None
        return found


def says_packed(header: bytes | bytearray) -> bool:
    """Return True if a header claims that frames may be compressed; this is not verified."""
    return header[_COMPRESSION_AT : _COMPRESSION_AT + 1] == bytes((_ZSTD,))


def sealed_bytes(data: bytes, data_key: DataKey, object_id: str) -> bytes:
    """Return the stored bytes of a small object, without compression."""
    if len(data) < min(_LARGE_BYTES, FRAME_BYTES):
        header, frame_key = _new_header(data_key, object_id, _FIXED)
        nonce = os.urandom(NONCE_BYTES)
        associated = _ASSOCIATED.pack(FrameKind.LAST, 0, len(data))
        return header + nonce + AESGCM(frame_key).encrypt(nonce, data, associated)
    cipher = FrameCipher.new(data_key, object_id)
    stored = bytearray(sealed_size(len(data)))
    stored[:HEADER_BYTES] = cipher.header
    last = len(data) // FRAME_BYTES
    with memoryview(stored) as out, memoryview(data) as plaintext:
        for number in range(last + 1):
            kind = FrameKind.LAST if number == last else FrameKind.WHOLE
            frame = plaintext[number * FRAME_BYTES : (number + 1) * FRAME_BYTES]
            cipher.seal(kind, number, frame, out[frame_offset(number) :])
    return bytes(stored)


def _new_header(data_key: DataKey, object_id: str, fixed: bytes) -> tuple[bytes, bytes]:
    """Return the header of a new object, and the key that encrypts its frames."""
    salt = os.urandom(_SALT_BYTES)
    frame_key, commitment = _derive(data_key, object_id, fixed, salt)
    return fixed + salt + commitment, frame_key


def _derive(data_key: DataKey, object_id: str, fixed: bytes, salt: bytes) -> tuple[bytes, bytes]:
    """Return (the key that encrypts the frames, the commitment to this key).

    They are the two blocks of HKDF with SHA-256 (RFC 5869), computed by hand: for a small blob,
    `HKDF` and `hmac` take twice as long, mostly to look up SHA-256.
    """
    context = len(data_key.context).to_bytes(2, "big") + data_key.context
    info = _LABEL + fixed + context + object_id.encode("ascii")
    inner, outer = _pads(salt)
    extracted = sha256(outer + sha256(inner + data_key.plaintext).digest()).digest()
    inner, outer = _pads(extracted)
    frame_key = sha256(outer + sha256(inner + info + b"\x01").digest()).digest()
    commitment = sha256(outer + sha256(inner + frame_key + info + b"\x02").digest()).digest()
    return frame_key, commitment


def _pads(key: bytes) -> tuple[bytes, bytes]:
    """Return the inner and the outer pad of HMAC with SHA-256 (RFC 2104)."""
    block = key.ljust(_BLOCK_BYTES, b"\x00")
    return block.translate(_INNER), block.translate(_OUTER)
