"""The bytes of a layer as they arrive: hashed, decompressed and limited while being read.

Part of the program `unpack`.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Final

from registry.image_roots.tar_entries import CHUNK, LayerRefused, Readable
from registry.oci.digest import new_hasher

MOST_RATIO: Final = 200
"""Maximum bytes of a tar per byte of its blob, once the tar has `_RATIO_FROM` bytes."""
_RATIO_FROM: Final = 64 << 20
_WINDOW_BYTES: Final = 128 << 20
"""Maximum window of zstd, the default limit of the ``zstd`` program."""
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
"""The last three bytes of a skippable frame's magic number (RFC 8878 §3.1.2)."""


class Blob:
    """The bytes of a blob, hashed as they are read."""

    def __init__(self, source: Readable, algorithm: str) -> None:
        self._source = source
        self._hash = new_hasher(algorithm)
        self._ahead = b""
        self.size = 0

    def peek(self, size: int) -> bytes:
        """Return the first `size` bytes, fewer if the blob ends, without consuming them."""
        while len(self._ahead) < size and (more := self._take(size)):
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end."""
        if not self._ahead:
            return self._take(size)
        found, self._ahead = self._ahead[:size], self._ahead[size:]
        return found

    def hexdigest(self) -> str:
        """Return the digest of the bytes read so far."""
        return self._hash.hexdigest()

    def _take(self, size: int) -> bytes:
        data = self._source.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data


class Tar:
    """The bytes of a layer's tar, hashed and limited as they are read."""

    def __init__(self, blob: Blob, most_bytes: int) -> None:
        self._blob = blob
        self._source = _decompressed(blob)
        self._hash = hashlib.sha256()
        self._most = most_bytes
        self.size = 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end.

        Raise `LayerRefused` if there are too many bytes, in total or for the blob's size, or the
        compression is broken.
        """
        data = self._source.read(min(size, CHUNK))
        self._hash.update(data)
        self.size += len(data)
        if self.size > self._most:
            raise LayerRefused(
                f"the layer unpacks to more than the {self._most} bytes an image may"
            )
        if self.size > max(_RATIO_FROM, MOST_RATIO * self._blob.size):
            raise LayerRefused(
                f"the layer unpacks to more than {MOST_RATIO} times its {self._blob.size} bytes"
            )
        return data

    def drain(self) -> None:
        """Read to the end, since bytes after the last entry are hashed too."""
        while self.read(CHUNK):
            pass
        while self._blob.read(CHUNK):
            pass

    def diff_id(self) -> str:
        """Return the sha256 in hex of the bytes read so far."""
        return self._hash.hexdigest()


def _decompressed(blob: Blob) -> Readable:
    """Return the decompressed tar. The blob's first bytes decide how: media types may be wrong."""
    start = blob.peek(4)
    if start.startswith(_GZIP):
        return _Gzip(blob)
    if start == _ZSTD or start[1:] == _ZSTD_SKIPPABLE:
        return _Zstd(blob)
    return blob


class _Gzip:
    """The bytes of one or more gzip members (RFC 1952)."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._member = zlib.decompressobj(wbits=31)
        self._ahead = b""

    def read(self, size: int) -> bytes:
        while True:
            data = self._ahead or self._source.read(CHUNK)
            self._ahead = b""
            if self._member.eof:
                if not data:
                    return b""
                self._ahead = data.lstrip(b"\0")  # padding between and after members
                if self._ahead:
                    self._member = zlib.decompressobj(wbits=31)
                continue
            if not data:
                raise LayerRefused("the layer's gzip ends early")
            try:
                found = self._member.decompress(data, size)
            except zlib.error as error:
                raise LayerRefused(f"the layer is no gzip: {error}") from None
            self._ahead = self._member.unconsumed_tail or self._member.unused_data
            if found:
                return found


class _Zstd:
    """The bytes of one or more zstd frames (RFC 8878)."""

    def __init__(self, source: Readable) -> None:
        import zstandard  # noqa: PLC0415 - few layers need it

        self._error = zstandard.ZstdError
        opened = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        self._reader = opened.stream_reader(
            source,  # type: ignore[arg-type] # all it takes of a file is `read`
            read_size=CHUNK,
            read_across_frames=True,
        )

    def read(self, size: int) -> bytes:
        try:
            return self._reader.read(size)
        except self._error as error:
            raise LayerRefused(f"the layer is no zstd: {error}") from None
