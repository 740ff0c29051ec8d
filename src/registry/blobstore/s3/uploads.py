"""State that the uploads of one process share: their writers, their tails, running checksums."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from blake3 import blake3

from registry.blobstore.base import ObjectUnknown, StageBusy
from registry.blobstore.s3.bucket import Bucket, ObjectHead
from registry.blobstore.s3.bucket_layout import Tail, TailName, object_key, tail_name, tails_of
from registry.blobstore.s3.encodings import Encoder
from registry.blobstore.s3.parts import Senders
from registry.blobstore.staging import HasherCache, UploadCache


class UploadState(NamedTuple):
    """The state of an upload in the bucket."""

    head: ObjectHead | None
    """Of the object that it has become, or of its parts that were made readable (`copying`)."""
    tails: frozenset[TailName]
    uploads: tuple[str, ...] = ()
    """Uploads in parts; looked for only if there is nothing else."""
    is_replaced: bool = False
    """A tail replaces the object, whose deletion failed."""

    @property
    def is_object(self) -> bool:
        """Return True if the upload was committed: then a tail is left from before.

        An object that has what was in the parts, and no more, was made of them to be read. If it
        is a committed one, it has the same bytes.
        """
        return (
            self.head is not None
            and not self.is_replaced
            and all(each.sent != self.head.size for each in self.tails)
        )

    @property
    def is_nothing(self) -> bool:
        """Return True if the bucket has nothing."""
        return self.head is None and not self.tails and not self.uploads


class HeldUpload(Protocol):
    """The writer of an upload in this process (`registry.blobstore.s3.staged.S3Staged`)."""

    @property
    def offset(self) -> int:
        """Return the number of bytes."""

    @property
    def is_staged(self) -> bool:
        """Return True if the bytes are no object."""

    @property
    def encoder(self) -> Encoder | None:
        """Return the bytes, if they are held and not committed."""


class Holds:
    """The writers of a process by upload id; a second one is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, HeldUpload | None] = {}

    def take(self, upload_id: str) -> None:
        """Hold an id; raise StageBusy if another does."""
        with self._lock:
            if upload_id in self._held:
                raise StageBusy(upload_id)
            self._held[upload_id] = None

    def set(self, upload_id: str, staged: HeldUpload) -> None:
        """Note the writer of an id that is held."""
        with self._lock:
            self._held[upload_id] = staged

    def release(self, upload_id: str) -> None:
        """Hold an id no more."""
        with self._lock:
            self._held.pop(upload_id, None)

    def find(self, upload_id: str) -> HeldUpload | None:
        """Return the writer of an id, or None."""
        return self._held.get(upload_id)

    def every(self) -> dict[str, HeldUpload]:
        """Return all writers by id."""
        with self._lock:
            return {name: each for name, each in self._held.items() if each is not None}


class Shared:
    """Settings and caches that the staged bytes of a store share.

    The caches keep hash states from one hold to the next in this process. With `compresses`, sealed
    bytes are compressed if that pays.
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
        """Return the state of an upload in the bucket; raise ObjectUnknown if it has nothing."""
        found = self.look(upload_id)
        if found.is_nothing:
            raise ObjectUnknown(upload_id)
        return found

    def look(self, upload_id: str) -> UploadState:
        """Return the state of an upload in the bucket, which may have nothing."""
        head = self.bucket.find(object_key(upload_id))
        tails = frozenset(self.tails_of(upload_id))
        if head is not None or tails:
            return self.judged(head, tails)
        return UploadState(None, tails, tuple(self.uploads_of(upload_id)))

    def judged(self, head: ObjectHead | None, tails: frozenset[TailName]) -> UploadState:
        """Return the state by object and tails; check in the bucket if a tail replaces the object.

        By its size alone, the object of old parts would look like a committed one beside the tail
        of an upload that went back to fewer bytes.
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
        """Yield the uploads in parts to the key of an object."""
        key = object_key(upload_id)
        return (each.upload for each in self.bucket.begun(key) if each.key == key)

    def known_tails(self, upload_id: str) -> frozenset[TailName]:
        """Return the tails that this process has written, if it remembers."""
        return self._tails.get(upload_id) or frozenset()

    def remember(self, upload_id: str, tails: frozenset[TailName]) -> None:
        """Remember which tails an upload has."""
        self._tails.put(upload_id, tails)

    def forget(self, upload_id: str) -> None:
        """Ask the bucket the next time."""
        self._tails.take(upload_id)

    def discard(self, upload_id: str) -> None:
        """Delete the staged bytes of an id; leave an object."""
        self.forget(upload_id)
        key = object_key(upload_id)
        for upload in list(self.uploads_of(upload_id)):
            self.bucket.abort(key, upload)
        tails = list(self.tails_of(upload_id))
        if not tails:
            return
        keys = [each.key for each in tails]
        found = self.judged(self.bucket.find(key), frozenset(tails))
        if found.head is not None and not found.is_object:
            keys.append(key)
        self.bucket.delete_all(keys)


class RunningChecksum(NamedTuple):
    """The BLAKE3 hasher of the stored bytes that a tail ends, kept between two requests.

    Another process may have written other frames since: then the upload has another tail.
    """

    about: object
    """The description of the tail."""
    crc: int
    hasher: blake3


class Checksums(UploadCache[RunningChecksum]):
    """The checksums of sealed uploads between two requests."""

    def take_for(self, upload_id: str, tail: Tail) -> blake3 | None:
        """Remove and return the checksum of an upload that has this tail."""
        found = self.take(upload_id)
        is_same = found is not None and found[:2] == (tail.about, crc32(tail.stored))
        return found.hasher if found is not None and is_same else None

    def keep(self, upload_id: str, tail: Tail, hasher: blake3) -> None:
        """Keep the checksum of an upload that has this tail."""
        self.put(upload_id, RunningChecksum(tail.about, crc32(tail.stored), hasher.copy()))
