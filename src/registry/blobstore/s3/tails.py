r"""Tails: what an upload has acknowledged, so that any node can go on with it.

The bytes of parts that were sent cannot be read before they are an object, nor can a part be
smaller than 5 MiB. So what is acknowledged is an object of its own: which parts there are, the
stored bytes behind them, and of a sealed upload the frame that is not full, sealed::

    "ENTREPOT TAIL 1\n" | length of the description (4 bytes) | description | bytes | partial frame

There may be two at a time: the one that was acknowledged last, and one that may not be.
"""

from __future__ import annotations

from typing import Final

import msgspec

from registry.blobstore.s3.bucket import Part

_MAGIC: Final = b"ENTREPOT TAIL 1\n"
_LENGTH_BYTES: Final = 4


class TailBroken(Exception):
    """An object is no tail."""


class Description(msgspec.Struct, frozen=True):
    """What is before the bytes of a tail."""

    offset: int
    upload: str | None = None
    token: str = ""
    """Of the upload in parts."""
    parts: list[Part] = []
    header: bytes | None = None
    """Of sealed bytes."""
    entries: bytes = b""
    """Of packed frames: where they are."""
    partial: int = 0
    """How many bytes the partial frame has."""


class Tail(msgspec.Struct, frozen=True):
    """A tail in memory."""

    about: Description
    stored: bytes
    """The stored bytes behind the parts."""
    partial: bytes = b""

    def encoded(self) -> bytes:
        """Return the object's bytes."""
        about = msgspec.json.encode(self.about)
        length = len(about).to_bytes(_LENGTH_BYTES, "big")
        return b"".join((_MAGIC, length, about, self.stored, self.partial))


def decoded(data: bytes) -> Tail:
    """Return the tail that an object is.

    Raises:
        TailBroken: it is none.

    """
    start = len(_MAGIC) + _LENGTH_BYTES
    length = int.from_bytes(data[len(_MAGIC) : start], "big")
    if not data.startswith(_MAGIC):
        raise TailBroken
    try:
        about = msgspec.json.decode(data[start : start + length], type=Description)
    except msgspec.DecodeError as error:
        raise TailBroken from error
    end = len(data) - about.partial
    if about.partial < 0 or end < start + length:
        raise TailBroken
    return Tail(about, data[start + length : end], data[end:])
