"""A blob store in memory: stores what the tests push, without a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final, TypeVar, TypeVarTuple, Unpack

from registry.blobstore.base import (
    PLAIN,
    SEALED,
    DataKey,
    ListedBytes,
    ObjectDamaged,
    ObjectUnknown,
    Orphan,
    StageBusy,
    StagedDropped,
    Stored,
)
from registry.blobstore.reading import BlockingGrowing, BlockingObject, StagedGrowth, StoredBytes
from registry.blobstore.sealed.frame_format import says_packed, sealed_bytes, unsealed_size
from registry.blobstore.sealed.objects import SealedObject, unseal
from registry.blobstore.sealed.table import claimed_size
from registry.blobstore.staging import (
    State,
    canonical_id,
    check_size,
    verified,
    wanted_algorithms,
)
from registry.blobstore.store import BlobStore
from registry.errors import StoreUnavailable
from registry.oci.digest import Digest, digest_of
from tests.packed_bytes import compressed_bytes

_READ_BYTES: Final = 256 * 1024
_PARTITIONS: Final = tuple(f"{number:02x}" for number in range(256))
"""By the last two hex digits of ids, as on a disk."""


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def at_once(
    call: Callable[[Unpack[Ts]], T],
    /,
    *arguments: *Ts,
    undo: Callable[[T], None] | None = None,
) -> T:
    """Make a call that does not block on the event loop (`cloudcore.threads.Runner`)."""
    return call(*arguments)


class MemoryStore(BlobStore):
    """Keep blobs in dictionaries of one process (`MemoryFiles`); no call waits."""

    def __init__(self, *, compresses: bool = False) -> None:
        self.files: Final = MemoryFiles(compresses=compresses)
        super().__init__(self.files, at_once, look_seconds=3600)  # there is no other process


class MemoryFiles:
    """Dictionaries of blobs, safe for threads; with `compresses`, as `DiskFiles` has it."""

    def __init__(self, *, compresses: bool = False) -> None:
        self.compresses: Final = compresses
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.staged: dict[str, bytearray] = {}
        """Staged bytes, which are not sealed before their commit."""
        self.keys: dict[str, DataKey] = {}
        """The keys of staged bytes."""
        self.held: set[str] = set()
        self.orphans: dict[str, tuple[Orphan, bytes]] = {}
        self._generation: str | None = None

    def close(self) -> None:
        """Do nothing: memory needs no closing."""

    def open(
        self, object_id: str, size: int | None = None, data_key: DataKey | None = None
    ) -> MemoryObject | SealedObject:
        """Open an object (`BlobReader.open`)."""
        data = self.objects.get(canonical_id(object_id))
        if data is None:
            if not self.take_back(object_id) or object_id not in self.objects:
                raise ObjectUnknown(object_id)
            data = self.objects[object_id]
        if data_key is not None:
            return unseal(MemoryObject(data), object_id, size, data_key)
        check_size(len(data), size)
        return MemoryObject(data)

    def open_staged(
        self, upload_id: str, data_key: DataKey | None = None
    ) -> MemoryObject | SealedObject | MemoryGrowing:
        """Open staged bytes that grow (`BlobReader.open_staged`)."""
        data = self.staged.get(canonical_id(upload_id))
        if data is None:
            return self.open(upload_id, data_key=data_key)
        return MemoryGrowing(self, upload_id, data, data_key)

    def open_stored(self, object_id: str, stored_size: int) -> BlockingObject:
        """Open the stored bytes of an object (`BlobReader.open_stored`)."""
        return self.open(object_id, stored_size)

    def check(self, object_id: str, stored_size: int) -> None:
        """Check the presence and size of an object (`BlobReader.check`)."""
        self.open(object_id, stored_size)

    def stage(
        self, upload_id: str, algorithm: str | None = None, data_key: DataKey | None = None
    ) -> MemoryStaged:
        """Begin to stage bytes under a new id (`BlobWriter.stage`)."""
        canonical_id(upload_id)
        with self.lock:
            if upload_id in self.staged or upload_id in self.objects:
                raise StageBusy(upload_id)
            self.staged[upload_id] = bytearray()
            self.held.add(upload_id)
        staged = MemoryStaged(self, upload_id)
        staged.rewind(0, algorithm=algorithm, data_key=data_key)
        return staged

    def resume(self, upload_id: str) -> MemoryStaged:
        """Hold staged bytes, or an object without a row, again (`BlobWriter.resume`)."""
        canonical_id(upload_id)
        with self.lock:
            self._check_free(upload_id)
            is_here = upload_id in self.staged or upload_id in self.objects
            if not (is_here or self.take_back(upload_id)):
                raise ObjectUnknown(upload_id)
            self.held.add(upload_id)
        return MemoryStaged(self, upload_id)

    def stage_copy(
        self,
        upload_id: str,
        source_id: str,
        size: int,
        data_key: DataKey | None = None,
        source_key: DataKey | None = None,
    ) -> MemoryStaged:
        """Begin to stage bytes with a copy of others (`BlobWriter.stage_copy`)."""
        source = canonical_id(source_id)
        with self.lock:
            self.take_back(source)
            there = self.staged.get(source)
        if there is None and source in self.objects:
            there = bytearray(self.unsealed(source, source_key))
        if there is None or len(there) < size:
            raise ObjectUnknown(source)
        staged = self.stage(upload_id, data_key=data_key)
        staged.write(memoryview(bytes(there[:size])))
        return staged

    def unsealed(self, object_id: str, data_key: DataKey | None) -> bytes:
        """Return the bytes of an object.

        Raises:
            ObjectUnknown: there is none, or it does not open.

        """
        try:
            return b"".join(bytes(each) for each in self.open(object_id, None, data_key).chunks())
        except (ObjectDamaged, StoreUnavailable) as error:
            raise ObjectUnknown(object_id) from error

    def resumable(self, upload_id: str, received: int, *, is_sealed: bool = False) -> int:
        """Return the offset at which an upload can continue (`BlobWriter.resumable`)."""
        self.take_back(upload_id)
        if upload_id in self.objects:
            found = self.objects[upload_id]
            return min(received, _unsealed_size(found) if is_sealed else len(found))
        return min(received, len(self.staged.get(upload_id, b"")))

    def discard(self, upload_id: str) -> None:
        """Delete what is staged under an id (`BlobWriter.discard`)."""
        canonical_id(upload_id)
        with self.lock:
            self._check_free(upload_id)
            self.staged.pop(upload_id, None)
            self.keys.pop(upload_id, None)

    def check_room(self) -> None:
        """Do nothing: memory has no reserve."""

    def partitions(self) -> Sequence[str]:
        """Return all pairs of hex digits in which ids end."""
        return _PARTITIONS

    def list_objects(self, partition: str | None = None) -> Iterator[ListedBytes]:
        """Yield every object, or those of a partition."""
        for object_id, data in list(self.objects.items()):
            if object_id.endswith(partition or ""):
                yield ListedBytes(object_id, len(data))

    def list_ids(self, partition: str) -> Iterator[str]:
        """Yield the ids of a partition's objects."""
        return (found.object_id for found in self.list_objects(partition))

    def list_staged(self) -> Iterator[ListedBytes]:
        """Yield all staged bytes by upload id."""
        for upload_id, data in list(self.staged.items()):
            yield ListedBytes(upload_id, len(data))

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; do nothing if it is absent."""
        self.objects.pop(canonical_id(object_id), None)

    def deleting(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing: there are no backups of it."""
        return nullcontext()

    def set_aside(self, object_id: str, moment: int, *, staged_too: bool = True) -> bool:
        """Make an object, or staged bytes, an orphan (`BlobSweeper.set_aside`)."""
        is_object = canonical_id(object_id) in self.objects
        if is_object:
            data = self.objects.pop(object_id)
        elif staged_too and object_id in self.staged:
            data = bytes(self.staged.pop(object_id))
        else:
            return False
        self.orphans[object_id] = Orphan(object_id, moment, is_object, len(data)), data
        return True

    def list_orphans(self) -> Iterator[Orphan]:
        """Yield every orphan."""
        return (orphan for orphan, _ in list(self.orphans.values()))

    def take_back(self, object_id: str) -> bool:
        """Put an orphan back where it was (`BlobSweeper.take_back`)."""
        orphan, data = self.orphans.pop(canonical_id(object_id), (None, b""))
        if orphan is None:
            return False
        if orphan.is_object:
            self.objects[object_id] = data
        else:
            self.staged[object_id] = bytearray(data)
        return True

    def delete_orphan(self, orphan: Orphan) -> None:
        """Delete the bytes of an orphan; do nothing if it is absent."""
        self.orphans.pop(orphan.object_id, None)

    def scan_alone(self) -> AbstractContextManager[bool]:
        """Return a context manager that gives True: there is one process."""
        return nullcontext(enter_result=True)

    def generation(self) -> str | None:
        """Return the noted generation, or None."""
        return self._generation

    def save_generation(self, generation: str) -> None:
        """Note the generation of the database."""
        self._generation = generation

    def _check_free(self, upload_id: str) -> None:
        if upload_id in self.held:
            raise StageBusy(upload_id)


class MemoryObject(StoredBytes):
    """The bytes of an object; they stay readable when the object is deleted."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self.length = len(data)

    def _read(self, offset: int, end: int) -> Iterator[memoryview]:
        for start in range(offset, end, _READ_BYTES):
            yield self._data[start : min(start + _READ_BYTES, end)]

    def read_into(self, view: memoryview, offset: int, *, wait: bool = True) -> bool:
        """Fill `view` (`StoredBytes`)."""
        found = self._data[offset : offset + len(view)]
        view[: len(found)] = found
        return len(found) == len(view)


class MemoryGrowing(BlockingGrowing):
    """Staged bytes of `MemoryFiles`, read while they grow."""

    def __init__(
        self, files: MemoryFiles, upload_id: str, data: bytearray, data_key: DataKey | None
    ) -> None:
        self._files = files
        self._upload_id = upload_id
        self._data = data
        self._data_key = data_key

    def growth(self) -> StagedGrowth:
        """Return the number of bytes, and whether they are committed."""
        with self._files.lock:
            if self._files.staged.get(self._upload_id) is self._data:
                return StagedGrowth(len(self._data), is_committed=False)
        with suppress(ObjectUnknown):
            if bytes(self._data) == self._files.unsealed(self._upload_id, self._data_key):
                return StagedGrowth(len(self._data), is_committed=True)
        raise StagedDropped(f"the upload {self._upload_id} was discarded")

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes that `growth` has counted."""
        found = bytes(self._data[offset : offset + count])
        if len(found) < count:
            raise StagedDropped(f"the upload {self._upload_id} was cut off")
        return found


class MemoryStaged:
    """Staged bytes of `MemoryFiles`; until `rewind` they may be an object's."""

    def __init__(self, files: MemoryFiles, upload_id: str) -> None:
        self._files = files
        self._upload_id = upload_id
        self._algorithm: str | None = None
        self._state = State.OPENED
        self._is_object = upload_id not in files.staged
        self._data = (
            bytearray(files.objects[upload_id]) if self._is_object else files.staged[upload_id]
        )
        self._opened_key = files.keys.get(upload_id)

    @property
    def offset(self) -> int:
        """Return the number of staged bytes."""
        return len(self._data)

    @property
    def closes_slowly(self) -> bool:
        """Return False."""
        return False

    def rewind_is_immediate(self, offset: int, *, is_sealed: bool = False) -> bool:
        """Return True."""
        return True

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,
        algorithm: str | None = None,
        data_key: DataKey | None = None,
    ) -> None:
        """Cut the bytes off at `offset`; if they are an object, make them staged bytes again."""
        if self._state is not State.OPENED:
            self._check_held()
        if offset == 0 and self._state is State.OPENED:
            self._begin_anew(data_key)
        else:
            self._take_key(data_key)
        if not 0 <= offset <= self.offset:
            raise ObjectUnknown(self._upload_id)
        if self._is_object:
            with self._files.lock:
                del self._files.objects[self._upload_id]
                self._files.staged[self._upload_id] = self._data
            self._is_object = False
        del self._data[offset:]
        self._algorithm = algorithm
        self._state = State.HELD

    def _begin_anew(self, data_key: DataKey | None) -> None:
        """Drop what is staged; other bytes may be sealed with another key, or none."""
        del self._data[:]
        self._files.keys.pop(self._upload_id, None)
        if data_key is not None:
            self._files.keys[self._upload_id] = data_key

    def _take_key(self, data_key: DataKey | None) -> None:
        """Unseal an object that is taken back; check the key of staged bytes."""
        if self._is_object:
            self._data = bytearray(self._files.unsealed(self._upload_id, data_key))
        elif self._data or self._state is State.HELD:
            is_opened = self._state is State.OPENED  # another may have deleted them since
            key = self._opened_key if is_opened else self._files.keys.get(self._upload_id)
            if (key is None) != (data_key is None):
                raise ValueError("the data key of staged bytes cannot be taken away or added")
            if key != data_key:
                raise ObjectUnknown(self._upload_id)
        if data_key is not None:
            self._files.keys[self._upload_id] = data_key

    def write(self, view: memoryview, /) -> None:
        """Append bytes."""
        self._check_held()
        self._data += view

    def flush(self) -> Mapping[str, str]:
        """Return the digests of all staged bytes; memory needs no flush."""
        self._check_held()
        return self._digests(self._algorithm)

    def commit(self, expected: Digest | None) -> Stored:
        """Verify the bytes against `expected` and make them an object."""
        self._check_held()
        algorithm = None if expected is None else expected.algorithm
        digest, alias = verified(self._digests(algorithm), expected)
        stored, encoding, checksum = bytes(self._data), PLAIN, None
        key = self._files.keys.get(self._upload_id)
        if key is not None:
            seal = compressed_bytes if self._files.compresses else sealed_bytes
            stored, encoding = seal(stored, key, self._upload_id), SEALED
            checksum = digest_of(stored, "blake3").partition(":")[2]
        with self._files.lock:
            if self._files.staged.pop(self._upload_id, None) is None:
                raise StoreUnavailable("the staged bytes are gone")
            self._files.keys.pop(self._upload_id, None)
            self._files.objects[self._upload_id] = stored
        self._state = State.COMMITTED
        sizes = len(self._data), len(stored)
        return Stored(self._upload_id, digest, alias, *sizes, encoding, checksum)

    def discard(self) -> None:
        """Delete the staged bytes; do nothing if they are an object or no longer held."""
        if self._state not in (State.OPENED, State.HELD):
            return
        if not self._is_object:
            with self._files.lock:
                del self._files.staged[self._upload_id]
        self.close()

    def close(self) -> None:
        """End the hold and keep the bytes."""
        if self._state is not State.ENDED:
            self._state = State.ENDED
            with self._files.lock:
                self._files.held.discard(self._upload_id)

    def _check_held(self) -> None:
        if self._state is not State.HELD:
            raise ValueError(f"the staged bytes are {self._state.value}")

    def _digests(self, algorithm: str | None) -> dict[str, str]:
        data = bytes(self._data)
        digests = (digest_of(data, name) for name in wanted_algorithms(algorithm))
        return {digest.algorithm: digest.partition(":")[2] for digest in digests}


def _unsealed_size(stored: bytes) -> int:
    return claimed_size(stored) if says_packed(stored) else unsealed_size(len(stored))
