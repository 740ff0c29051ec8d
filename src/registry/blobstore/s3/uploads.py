"""State that the uploads of one process share: their writers, their tails, running checksums."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from blake3 import blake3

from registry.blobstore.base import ObjectUnknown, StageBusy
from registry.blobstore.s3.bucket import Bucket, ObjectHead
from registry.blobstore.s3.bucket_layout import Tail, TailName, object_key, tail_name, tails_of
from registry.blobstore.s3.parts import Senders
from registry.blobstore.staging import HasherCache, UploadCache

if TYPE_CHECKING:
    from registry.blobstore.s3.staged import S3Staged


class UploadState(NamedTuple):
    """The state of an upload in the bucket."""

    head: ObjectHead | None
    """The headers of its object, or of its parts completed for reading (`copying`); or None."""
    tails: frozenset[TailName]
    uploads: tuple[str, ...] = ()
    """Ids of multipart uploads; looked up only if there is neither an object nor a tail."""
    is_replaced: bool = False
    """A tail has replaced the object, but the object's deletion failed."""

    @property
    def is_object(self) -> bool:
        """Return True if the upload was committed, even if an earlier tail is left.

        An object of exactly the sent parts does not count: it was made only to read the parts, or
        has the same bytes as such an object.
        """
        return (
            self.head is not None
            and not self.is_replaced
            and all(each.sent != self.head.size for each in self.tails)
        )

    @property
    def is_nothing(self) -> bool:
        """Return True if the bucket has no object, tail or multipart upload for this id."""
        return self.head is None and not self.tails and not self.uploads


class Holds:
    """The writers of a process by upload id; each id has at most one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, S3Staged | None] = {}

    def take(self, upload_id: str) -> None:
        """Reserve an id for a new writer; raise `StageBusy` if the id already has one."""
        with self._lock:
            if upload_id in self._held:
                raise StageBusy(upload_id)
            self._held[upload_id] = None

    def set(self, upload_id: str, staged: S3Staged) -> None:
        """Set the writer of a reserved id."""
        with self._lock:
            self._held[upload_id] = staged

    def release(self, upload_id: str) -> None:
        """Remove the writer of an id."""
        with self._lock:
            self._held.pop(upload_id, None)

    def find(self, upload_id: str) -> S3Staged | None:
        """Return the writer of an id, or None if it has none."""
        return self._held.get(upload_id)

    def every(self) -> dict[str, S3Staged]:
        """Map upload ids to their writers."""
        with self._lock:
            return {name: each for name, each in self._held.items() if each is not None}


class Shared:
    """Settings and caches that the staged bytes of a store share.

    The caches keep an upload's hash states in this process from one request to the next. With
    `compresses`, sealed bytes are compressed if that saves space.
    """

    def __init__(self, bucket: Bucket, senders: Senders, holds: Holds, *, compresses: bool) -> None:
        self.bucket: Final = bucket
        self.senders: Final = senders
        self.holds: Final = holds
        self.compresses: Final = compresses
        self.hashers: Final = HasherCache()
        self.checksums: Final = Checksums()
        self._tails = UploadCache[frozenset[TailName]]()

    def find(self, upload_id: str) -> UploadState:
        """Return the state of an upload in the bucket; raise `ObjectUnknown` if it is empty."""
        found = self.look(upload_id)
        if found.is_nothing:
            raise ObjectUnknown(upload_id)
        return found

    def look(self, upload_id: str) -> UploadState:
        """Return the state of an upload in the bucket, which may be empty."""
        head = self.bucket.find(object_key(upload_id))
        tails = frozenset(self.tails_of(upload_id))
        if head is not None or tails:
            return self.state_of(head, tails)
        return UploadState(None, tails, tuple(self.uploads_of(upload_id)))

    def state_of(self, head: ObjectHead | None, tails: frozenset[TailName]) -> UploadState:
        """Return an upload's state; look up `is_replaced` if it has both an object and tails.

        The size alone cannot tell: after an upload went back to fewer bytes, the object of its old
        parts looks like a committed one.
        """
        found = UploadState(head, tails)
        if head is None or not found.is_object:
            return found
        behind = (self.bucket.find(each.key) for each in tails)
        is_replaced = any(tail and tail.replaces == head.token != "" for tail in behind)
        return found._replace(is_replaced=is_replaced)

    def tails_of(self, upload_id: str) -> Iterable[TailName]:
        """Yield the tails of an upload."""
        for entry in self.bucket.listed(tails_of(upload_id)):
            name = tail_name(entry.key)
            if name is not None:
                yield name

    def uploads_of(self, upload_id: str) -> Iterable[str]:
        """Yield the ids of the multipart uploads to the key of an object."""
        key = object_key(upload_id)
        return (each.upload for each in self.bucket.begun(key) if each.key == key)

    def known_tails(self, upload_id: str) -> frozenset[TailName]:
        """Return the tails of an upload that this process remembers; empty if it remembers none."""
        return self._tails.get(upload_id) or frozenset()

    def remember(self, upload_id: str, tails: frozenset[TailName]) -> None:
        """Remember the tails of an upload."""
        self._tails.put(upload_id, tails)

    def forget(self, upload_id: str) -> None:
        """Forget the tails of an upload, so that the bucket is asked next time."""
        self._tails.take(upload_id)

    def discard(self, upload_id: str) -> None:
        """Delete the staged bytes of an id; keep an object that was committed."""
        self.forget(upload_id)
        key = object_key(upload_id)
        for upload in list(self.uploads_of(upload_id)):
            self.bucket.abort(key, upload)
        tails = list(self.tails_of(upload_id))
        if not tails:
            return
        keys = [each.key for each in tails]
        found = self.state_of(self.bucket.find(key), frozenset(tails))
        if found.head is not None and not found.is_object:
            keys.append(key)
        self.bucket.delete_all(keys)


class RunningChecksum(NamedTuple):
    """The BLAKE3 hasher of the stored bytes up to the end of a tail, cached between two requests.

    If another process has written since, the upload has another tail, and the hasher is dropped.
    """

    about: object
    """The description of the tail; `crc` is the CRC of its stored bytes."""
    crc: int
    hasher: blake3


class Checksums(UploadCache[RunningChecksum]):
    """Cached checksums of sealed uploads, from one request to the next."""

    def take_for(self, upload_id: str, tail: Tail) -> blake3 | None:
        """Remove and return the hasher of an upload; None if absent, or if the tail has changed."""
        found = self.take(upload_id)
        if found is None or found[:2] != (tail.about, crc32(tail.stored)):
            return None
        return found.hasher

    def keep(self, upload_id: str, tail: Tail, hasher: blake3) -> None:
        """Cache the hasher of an upload that now ends with this tail."""
        self.put(upload_id, RunningChecksum(tail.about, crc32(tail.stored), hasher.copy()))
