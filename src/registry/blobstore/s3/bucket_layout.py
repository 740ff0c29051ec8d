"""Layout of a store in its bucket: the keys, all below the key prefix, and the content of tails.

::

    objects/<last two hex digits of id>/<id>           objects, and the sent parts of uploads
    staged/<id>/tail-<offset>-<sent>-<stored>          the end of an upload's acknowledged bytes
    orphans/<last two digits>/<id>.<moment>.<kind>.<size>   marks bytes as having no row
    generation                                         the saved generation of the database

Nothing is renamed: an upload sends its parts to the key of its object.

Sent parts cannot be read before they become an object, and a part cannot be smaller than 5 MiB. So
a *tail*, a separate object, lets any node continue an upload. It records which parts were sent, the
stored bytes after them, and for a sealed upload the partial frame, sealed. It begins with the line
``ENTREPOT TAIL 1``::

    first line | length of the description (4 bytes) | description | bytes | partial frame

An upload may have two tails: the one acknowledged last, and a later one that may not be.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from cloudcore.resource_names import is_canonical_uuid
from registry.blobstore.base import Orphan
from registry.blobstore.s3.bucket import Part

OBJECTS: Final = "objects/"
STAGED: Final = "staged/"
ORPHANS: Final = "orphans/"
GENERATION: Final = "generation"
PARTITIONS: Final = tuple(f"{number:02x}" for number in range(256))
"""The last two hex digits of ids, which are random in a UUID of any version."""
_TAIL: Final = re.compile(r"staged/([0-9a-f-]{36})/tail-([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})")
_ORPHAN: Final = re.compile(
    r"orphans/[0-9a-f]{2}/([0-9a-f-]{36})\.([0-9]{1,19})\.(object|staged)\.([0-9]{1,19})"
)


class TailName(NamedTuple):
    """The fields in a tail's key."""

    upload_id: str
    offset: int
    """Bytes of the upload up to the tail's end, counted as they were pushed."""
    sent: int
    """Stored bytes in sent parts, which precede the tail."""
    stored: int
    """Stored bytes in sent parts and in the tail."""

    @property
    def key(self) -> str:
        """Return the key of the tail."""
        return f"{tails_of(self.upload_id)}{self.offset}-{self.sent}-{self.stored}"


def object_key(object_id: str) -> str:
    """Return the key of an object's bytes."""
    return f"{objects_in(object_id[-2:])}{object_id}"


def objects_in(partition: str) -> str:
    """Return the prefix of the keys of a partition's objects."""
    return f"{OBJECTS}{partition}/"


def object_id_of(key: str) -> str | None:
    """Return the id in an object's key; None if this is not the key of an object."""
    name = key.rpartition("/")[2]
    return name if is_canonical_uuid(name) and key == object_key(name) else None


def tails_of(upload_id: str) -> str:
    """Return the prefix of the keys of an upload's tails."""
    return f"{STAGED}{upload_id}/tail-"


def tail_name(key: str) -> TailName | None:
    """Parse a tail's key; return None if this is not the key of a tail."""
    match = _TAIL.fullmatch(key)
    if match is None or not is_canonical_uuid(match[1]):
        return None
    return TailName(match[1], int(match[2]), int(match[3]), int(match[4]))


def orphans_in(partition: str) -> str:
    """Return the prefix of the keys that mark the orphans of a partition."""
    return f"{ORPHANS}{partition}/"


def orphans_of(object_id: str) -> str:
    """Return the prefix of the keys that mark an object id as an orphan."""
    return f"{orphans_in(object_id[-2:])}{object_id}."


def orphan_key(orphan: Orphan) -> str:
    """Return the key of an orphan's mark."""
    kind = "object" if orphan.is_object else "staged"
    return f"{orphans_of(orphan.object_id)}{orphan.set_aside_at}.{kind}.{orphan.stored_size}"


def orphan_of(key: str) -> Orphan | None:
    """Parse the key of an orphan's mark; return None if this is not the key of a mark."""
    match = _ORPHAN.fullmatch(key)
    if match is None or not is_canonical_uuid(match[1]):
        return None
    return Orphan(match[1], int(match[2]), match[3] == "object", int(match[4]))


_MAGIC: Final = b"ENTREPOT TAIL 1\n"
_LENGTH_BYTES: Final = 4


class TailBroken(Exception):
    """The object is not a valid tail."""


class Description(msgspec.Struct, frozen=True):
    """The description at the beginning of a tail."""

    offset: int
    upload: str | None = None
    """The id of the multipart upload; None if no part was sent."""
    token: str = ""
    """The token of the multipart upload."""
    parts: list[Part] = []
    header: bytes | None = None
    """The header of a sealed upload; None for a plain one."""
    entries: bytes = b""
    """The entries of packed frames, from which their positions are computed."""
    partial: int = 0
    """Length of the partial frame in bytes."""


class Tail(msgspec.Struct, frozen=True):
    """A tail in memory."""

    about: Description
    stored: bytes
    """The stored bytes after the sent parts."""
    partial: bytes = b""

    def encoded(self) -> bytes:
        """Return the bytes of the tail's object."""
        about = msgspec.json.encode(self.about)
        length = len(about).to_bytes(_LENGTH_BYTES, "big")
        return b"".join((_MAGIC, length, about, self.stored, self.partial))


def decoded(data: bytes) -> Tail:
    """Decode an object as a tail; raise `TailBroken` if it is not a valid tail."""
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
