"""The blobs of a store in a bucket: one object each, opened by id."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

from registry.blobstore.base import (
    DataKey,
    Deleted,
    ListedBytes,
    ObjectDamaged,
    ObjectUnknown,
    Orphan,
    StagedDropped,
)
from registry.blobstore.locks import StoreLocks
from registry.blobstore.reading import BlockingObject, StoredBytes
from registry.blobstore.s3.bucket import Bucket, ObjectHead
from registry.blobstore.s3.bucket_layout import (
    GENERATION,
    OBJECTS,
    PARTITIONS,
    STAGED,
    object_id_of,
    object_key,
    objects_in,
    tail_name,
    tails_of,
)
from registry.blobstore.s3.cached_objects import CachedObject
from registry.blobstore.s3.copying import prefix_of
from registry.blobstore.s3.disk_cache import DiskCache
from registry.blobstore.s3.growing import GrowingUpload
from registry.blobstore.s3.memory import MemoryBudget
from registry.blobstore.s3.objects import S3Object
from registry.blobstore.s3.orphans import Marks
from registry.blobstore.s3.parts import PartBytes, Senders, part_bytes
from registry.blobstore.s3.responses import KeyMissing, StoreRefused
from registry.blobstore.s3.staged import S3Staged
from registry.blobstore.s3.uploads import Holds, Shared
from registry.blobstore.sealed.frame_format import (
    FRAME_BYTES,
    HEADER_BYTES,
    SealBroken,
    says_packed,
    unsealed_size,
)
from registry.blobstore.sealed.objects import SealedObject, unseal
from registry.blobstore.sealed.shared_frames import SharedFrames
from registry.blobstore.sealed.table import SIZE_BYTES, claimed_size
from registry.blobstore.staging import canonical_id, check_size
from registry.errors import StoreUnavailable

_MIB: Final = 1 << 20


class S3Files:
    """Keeps blobs in a bucket (`registry.blobstore.s3.bucket_layout`). Its calls block.

    The lease in an upload session's row decides which process may write to an upload; within this
    process, a second writer is refused here too.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        compresses: bool = False,
        sizes: PartBytes = part_bytes,
        holds: Holds | None = None,
        locks: StoreLocks | None = None,
        cache: DiskCache | None = None,
        folder: Path | None = None,
    ) -> None:
        """Use a bucket; with `compresses`, compress sealed objects if that saves space.

        - `sizes` returns the size of each part
        - `holds` are shared by the stores of one process that use the same bucket
        - `locks` coordinate the processes that use the bucket
        - `cache` is the disk cache through which objects with a row are read; `close` closes it
        - `folder` has the unnamed files of uploads that do not fit in memory
        """
        self.compresses: Final = compresses
        self.bucket: Final = bucket
        self._senders = Senders(bucket.settings.store_s3_buffer_mb * _MIB, sizes, folder)
        self._shared = Shared(bucket, self._senders, holds or Holds(), compresses=compresses)
        self._marks = Marks(self._shared)
        self._frames = SharedFrames()
        self._scanning = threading.Lock()
        self._locks = locks
        self._cache = cache

    @property
    def budget(self) -> MemoryBudget:
        """Return the memory budget for bytes that are not sent yet."""
        return self._senders.budget

    def close(self) -> None:
        """Release the threads and connections; objects that were opened stay readable."""
        self._senders.close()
        if self._cache is not None:
            self._cache.close()
        self.bucket.close()

    def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> StoredBytes | SealedObject | CachedObject:
        """Open an object (`BlobReader.open`)."""
        name, cache = canonical_id(object_id), self._cache
        self._keep(object_id)
        if cache is None or size is None:  # without a row, the bytes of an id may still change
            return self._fitting(self._in_bucket(name), object_id, size, data_key)
        cached = cache.open(name)
        if cached is not None:
            with suppress(ObjectDamaged, StoreUnavailable):
                opened = self._fitting(cached, object_id, size, data_key)
                return CachedObject(opened, lambda: cache.refuse(name), cache.served)
            cache.drop(name)
        stored = cache.kept(name, self._in_bucket(name), lambda: self._in_bucket(name))
        opened = self._fitting(stored, object_id, size, data_key)
        if cached is not None:  # the bucket has other bytes than the file
            cache.found_bad()
        return opened

    def _fitting(
        self, stored: StoredBytes, object_id: str, size: int | None, data_key: DataKey | None
    ) -> StoredBytes | SealedObject:
        """Return stored bytes as an object, decrypted with its key; on an error, close them."""
        if data_key is not None:
            return unseal(stored, object_id, size, data_key, self._frames)
        try:
            check_size(stored.length, size)
        except ObjectDamaged:
            stored.close()
            raise
        return stored

    def _in_bucket(self, name: str) -> S3Object:
        return S3Object.open(self.bucket, object_key(name), name)

    def _forget(self, *object_ids: str) -> None:
        if self._cache is not None:
            for each in object_ids:
                self._cache.drop(canonical_id(each))

    def open_staged(
        self, upload_id: str, data_key: DataKey | None = None
    ) -> BlockingObject | GrowingUpload:
        """Open staged bytes to read them while they grow (`BlobReader.open_staged`)."""
        name = canonical_id(upload_id)
        held = self.held(name)
        if held is None or held.encoder is None:
            with suppress(ObjectUnknown):
                return self.open_committed(name, data_key)
            if not self.is_staged(name):
                raise ObjectUnknown(name)
        return GrowingUpload(self, name, data_key)

    def open_committed(self, upload_id: str, data_key: DataKey | None) -> BlockingObject:
        """Open the object that an upload has become.

        Raises:
            ObjectUnknown: there is none, or one that was made of the sent parts only to read them.
            ObjectDamaged, StoreUnavailable: as `open`.

        """
        try:
            opened = self.open(upload_id, data_key=data_key)
        except ObjectDamaged:
            if self._shared.look(upload_id).is_object:
                raise
            raise ObjectUnknown(upload_id) from None
        with ExitStack() as unneeded:
            unneeded.callback(opened.close)
            has_tails = any(True for _ in self._shared.tails_of(upload_id))
            if has_tails and not self._shared.look(upload_id).is_object:
                raise ObjectUnknown(upload_id)
            unneeded.pop_all()
        return opened

    def open_stored(self, object_id: str, stored_size: int) -> StoredBytes | SealedObject:
        """Open the stored bytes of an object (`BlobReader.open_stored`)."""
        self._keep(object_id)
        stored = self._in_bucket(canonical_id(object_id))
        return self._fitting(stored, object_id, stored_size, None)

    def check(self, object_id: str, stored_size: int) -> None:
        """Check the presence and size of an object (`BlobReader.check`)."""
        try:
            head = self.bucket.head(object_key(canonical_id(object_id)))
        except KeyMissing as error:
            raise ObjectUnknown(object_id) from error
        self._keep(object_id)
        check_size(head.size, stored_size)

    def stage(
        self,
        upload_id: str,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
        *,
        is_fresh: bool = False,
    ) -> S3Staged:
        """Begin to stage bytes under a new id (`BlobWriter.stage`)."""
        name = canonical_id(upload_id)
        return S3Staged.create(self._shared, name, algorithm, data_key, is_fresh=is_fresh)

    def resume(self, upload_id: str) -> S3Staged:
        """Hold staged bytes, or an object without a row, again (`BlobWriter.resume`)."""
        name = canonical_id(upload_id)
        staged = S3Staged.take_up(self._shared, name)
        try:
            self._keep(name)
        except BaseException:
            staged.close()
            raise
        return staged

    def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        data_key: DataKey | None = None,
        source_key: DataKey | None = None,
    ) -> S3Staged:
        """Begin to stage bytes with a copy of stored bytes (`BlobWriter.stage_copy`)."""
        source = canonical_id(source_id)
        staged = self.stage(upload_id, data_key=data_key)
        try:
            self._keep(source)
            found = self._shared.find(source)
            for view in prefix_of(self.bucket, source, found, source_key, size):
                staged.write(view)
        except BaseException:
            staged.discard()
            raise
        return staged

    def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """Return the offset at which an upload can continue (`BlobWriter.resumable`)."""
        name = canonical_id(upload_id)
        self._keep(name)
        found = self._shared.look(name)
        if found.is_object and found.head is not None:
            size = found.head.size
            return min(received, self._unsealed_size(name, found.head) if is_sealed else size)
        there = max((each.offset for each in found.tails), default=0)
        if received <= there:
            return received
        return there // FRAME_BYTES * FRAME_BYTES if is_sealed else there

    def discard(self, upload_id: str) -> None:
        """Delete the staged bytes of an id (`BlobWriter.discard`)."""
        name = canonical_id(upload_id)
        self._shared.holds.take(name)
        try:
            self._shared.discard(name)
        finally:
            self._shared.holds.release(name)

    def check_room(self) -> None:
        """Check that the bucket responds; S3 does not say how much room there is."""
        self.bucket.find(GENERATION)

    def held(self, upload_id: str) -> S3Staged | None:
        """Return the writer in this process that holds an upload; None if there is none."""
        return self._shared.holds.find(upload_id)

    def is_staged(self, upload_id: str) -> bool:
        """Return True if an upload has begun and is not yet an object."""
        found = self._shared.look(upload_id)
        return not found.is_nothing and not found.is_object

    def acknowledged(
        self, upload_id: str, data_key: DataKey | None, more_than: int
    ) -> bytes | None:
        """Return an upload's acknowledged bytes if they are all in one tail; else None.

        Return None also if there are no more than `more_than` bytes, or the tail cannot be read.

        Raise `StagedDropped` if the upload was discarded.
        """
        found = self._shared.look(upload_id)
        if found.is_nothing:
            raise StagedDropped(f"the upload {upload_id} was discarded")
        last = max(found.tails, key=lambda each: each.offset, default=None)
        if found.head is not None or last is None or last.sent or last.offset <= more_than:
            return None
        try:
            views = prefix_of(self.bucket, upload_id, found, data_key, last.offset)
            return b"".join(bytes(view) for view in views)
        except ObjectUnknown:  # it was replaced just now
            return None

    def is_set_aside(self, object_id: str) -> bool:
        """Return True if this process knows that the bytes are an orphan."""
        return self._marks.is_known(object_id)

    def partitions(self) -> Sequence[str]:
        """Return the 256 pairs of hex digits by which object keys are partitioned."""
        return PARTITIONS

    def list_objects(self, partition: str | None = None) -> Iterator[ListedBytes]:
        """Yield every object, or those of a partition, except orphans."""
        orphans = self._marks.ids(partition)
        for entry in self.bucket.listed(OBJECTS if partition is None else objects_in(partition)):
            object_id = object_id_of(entry.key)
            if object_id is None or object_id in orphans:
                continue
            held = self.held(object_id)
            if held is None or not held.is_staged:  # else the object was made only to be read
                yield ListedBytes(object_id, entry.size)

    def list_ids(self, partition: str) -> Iterator[str]:
        """Yield the ids of a partition's objects (`BlobSweeper.list_ids`)."""
        return (each.object_id for each in self.list_objects(partition))

    def list_staged(self) -> Iterator[ListedBytes]:
        """Yield the staged bytes of each upload, except orphans.

        On the way, delete the tails and parts that committed uploads have left. For uploads that
        this process holds, sizes include bytes not yet sent.
        """
        orphans = self._marks.ids()
        held = self._shared.holds.every()
        for name, staged in held.items():
            if staged.is_staged and name not in orphans:
                yield ListedBytes(name, staged.offset)
        tails: dict[str, list[int]] = {}
        for entry in self.bucket.listed(STAGED):
            found = tail_name(entry.key)
            if found is not None and found.upload_id not in held:
                tails.setdefault(found.upload_id, []).append(found.stored)
        begun = (object_id_of(each.key) for each in self.bucket.begun(OBJECTS))
        for name in {*tails, *filter(None, begun)} - held.keys() - orphans:
            if not self._is_left(name):
                yield ListedBytes(name, max(tails.get(name, ()), default=0))

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; do nothing if it is absent."""
        self._forget(object_id)
        self.bucket.delete_all([object_key(canonical_id(object_id))])

    def delete_every(self, object_ids: Sequence[str]) -> Deleted:
        """Delete objects, 1,000 per call (`BlobSweeper.delete`)."""
        keys = {object_key(canonical_id(each)): each for each in object_ids}
        self._forget(*object_ids)
        try:
            with self.deleting():
                failed = self.bucket.delete(list(keys))
        except StoreUnavailable as error:
            return Deleted([], error)
        deleted = [each for key, each in keys.items() if key not in failed]
        refusal = StoreRefused(next(iter(failed.values()))) if failed else None
        return Deleted(deleted, refusal)

    def deleting(self) -> AbstractContextManager[None]:
        """Prevent backups from beginning during the block (`FleetLocks.deleting`)."""
        return nullcontext() if self._locks is None else self._locks.deleting()

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Make an object, or staged bytes, an orphan (`BlobSweeper.set_aside`)."""
        return self._marks.set_aside(canonical_id(object_id), moment, staged_too=staged_too)

    def list_orphans(self) -> Iterator[Orphan]:
        """Yield every orphan."""
        return self._marks.listed()

    def take_back(self, object_id: str) -> bool:
        """Turn an orphan back into an object or staged bytes (`BlobSweeper.take_back`)."""
        return self._marks.take_back(canonical_id(object_id))

    def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan; do nothing if it is absent."""
        with self.deleting():
            self._marks.delete(orphan)

    @contextmanager
    def scan_alone(self) -> Iterator[bool]:
        """Yield True to one process at a time, by the locks; without locks, to one thread.

        Two concurrent scans do no harm: they only set a mark twice.
        """
        if self._locks is not None:
            with self._locks.scan_alone() as is_alone:
                yield is_alone
            return
        is_alone = self._scanning.acquire(blocking=False)
        try:
            yield is_alone
        finally:
            if is_alone:
                self._scanning.release()

    def generation(self) -> str | None:
        """Return the saved generation of the database, or None if none is saved."""
        try:
            return self.bucket.read(GENERATION).decode("ascii", "replace").strip()
        except KeyMissing:
            return None

    def save_generation(self, generation: str) -> None:
        """Save the generation of the database (`BlobSweeper.save_generation`)."""
        self.bucket.put(GENERATION, f"{generation}\n".encode())

    def _keep(self, object_id: str) -> None:
        """Remove the orphan mark of bytes that are needed, if this process knows of one."""
        if self._marks.is_known(object_id):
            self._marks.take_back(object_id)

    def _unsealed_size(self, object_id: str, head: ObjectHead) -> int:
        """Return the plain size of a sealed object; 0 if its stored size is invalid."""
        key, end = object_key(object_id), head.size
        if end < HEADER_BYTES + SIZE_BYTES:
            return 0
        if not says_packed(self._bytes(key, 0, HEADER_BYTES)):
            try:
                return unsealed_size(end)
            except SealBroken:
                return 0
        return claimed_size(self._bytes(key, end - SIZE_BYTES, end))

    def _bytes(self, key: str, start: int, stop: int) -> bytes:
        return bytes(self.bucket.get(key, start, stop).body.read())

    def _is_left(self, upload_id: str) -> bool:
        """Return True if an upload was committed; then delete the tails and parts that it has left.

        Tails and parts newer than the object stay: it is being turned back into staged bytes. A
        tail may have been stored anew since the caller listed it, so the tails are listed again,
        after looking at the object.
        """
        head = self.bucket.find(object_key(upload_id))
        if head is None or self.held(upload_id) is not None:
            return False
        entries = list(self.bucket.listed(tails_of(upload_id)))
        tails = frozenset(each for each in map(tail_name, (e.key for e in entries)) if each)
        if not self._shared.state_of(head, tails).is_object:
            return False
        self.bucket.delete_all([e.key for e in entries if e.modified < head.modified])
        key = object_key(upload_id)
        for begun in list(self.bucket.begun(key)):
            if begun.key == key and begun.begun < head.modified:
                self.bucket.abort(key, begun.upload)
        return True
