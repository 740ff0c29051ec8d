"""The blob store in memory, for tests: the same seam, and no file to send."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from registry.blobstore.base import (
    BlobStore,
    FileRegion,
    ObjectUnknown,
    Orphan,
    StageBusy,
    Staged,
    Stored,
    StoredObject,
    StoredRange,
)
from registry.blobstore.staging import (
    State,
    canonical_id,
    check_size,
    checked_range,
    verified,
    wanted_algorithms,
)
from registry.errors import DigestMismatch
from registry.oci.digest import Digest, digest_of

_READ_BYTES: Final = 256 * 1024


class MemoryStore:
    """Keeps blobs in dictionaries of one process; safe for threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.staged: dict[str, bytearray] = {}
        self.held: set[str] = set()
        self.orphans: dict[str, tuple[Orphan, bytes]] = {}
        self._generation: str | None = None

    def open(
        self, object_id: str, start: int = 0, stop: int | None = None, size: int | None = None
    ) -> MemoryRange:
        """Open bytes ``[start, stop)`` of an object (`BlobReader.open`)."""
        data = self.objects.get(canonical_id(object_id))
        if data is None:
            if not self.take_back(object_id):
                raise ObjectUnknown(object_id)
            data = self.objects[object_id]
        check_size(len(data), size)
        start, end = checked_range(start, stop, len(data))
        return MemoryRange(memoryview(data)[start:end])

    def check(self, object_id: str, size: int) -> None:
        """Check the presence and size of an object (`BlobReader.check`)."""
        self.open(object_id, 0, 0, size)

    def stage(self, upload_id: str, algorithm: str | None = None) -> MemoryStaged:
        """Begin to stage bytes under a new id (`BlobWriter.stage`)."""
        canonical_id(upload_id)
        with self.lock:
            if upload_id in self.staged or upload_id in self.objects:
                raise StageBusy(upload_id)
            self.staged[upload_id] = bytearray()
            self.held.add(upload_id)
        staged = MemoryStaged(self, upload_id)
        staged.rewind(0, algorithm=algorithm)
        return staged

    def resume(self, upload_id: str) -> MemoryStaged:
        """Take up staged bytes, or an object never made a blob (`BlobWriter.resume`)."""
        canonical_id(upload_id)
        with self.lock:
            self._check_free(upload_id)
            is_here = upload_id in self.staged or upload_id in self.objects
            if not (is_here or self.take_back(upload_id)):
                raise ObjectUnknown(upload_id)
            self.held.add(upload_id)
        return MemoryStaged(self, upload_id)

    def discard(self, upload_id: str) -> None:
        """Delete what is staged under an id (`BlobWriter.discard`)."""
        canonical_id(upload_id)
        with self.lock:
            self._check_free(upload_id)
            self.staged.pop(upload_id, None)

    def check_room(self) -> None:
        """Do nothing: there is room."""

    def remove_duplicate(self, object_id: str) -> None:
        """Delete an object just committed for which no row was written."""
        self.delete(object_id)

    def replace(self, object_id: str, new_id: str) -> None:
        """Move the bytes of an object just committed to another id (`BlobWriter.replace`)."""
        with self.lock:
            if canonical_id(new_id) not in self.objects:
                raise ObjectUnknown(new_id)
            self.objects[canonical_id(object_id)] = self.objects.pop(new_id)

    def list_objects(self, shard: int | None = None) -> Iterator[StoredObject]:
        """Yield every object."""
        ending = "" if shard is None else f"{shard:02x}"
        for object_id, data in list(self.objects.items()):
            if object_id.endswith(ending):
                yield StoredObject(object_id, len(data))

    def list_ids(self, shard: int) -> Iterator[str]:
        """Yield the ids of a shard's objects."""
        return (found.object_id for found in self.list_objects(shard))

    def list_staged(self) -> Iterator[StoredObject]:
        """Yield everything staged, under its upload id."""
        for upload_id, data in list(self.staged.items()):
            yield StoredObject(upload_id, len(data))

    def delete(self, object_id: str) -> None:
        """Delete an object's bytes; absent is success."""
        self.objects.pop(canonical_id(object_id), None)

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
        """Delete the bytes of an orphan for good; absent is success."""
        self.orphans.pop(orphan.object_id, None)

    def scan_alone(self) -> AbstractContextManager[bool]:
        """Return a context manager that is True: there is one process."""
        return nullcontext(enter_result=True)

    def generation(self) -> str | None:
        """Return the generation that was noted last."""
        return self._generation

    def note_generation(self, generation: str) -> None:
        """Note the generation of the database."""
        self._generation = generation

    def _check_free(self, upload_id: str) -> None:
        if upload_id in self.held:
            raise StageBusy(upload_id)


class MemoryRange(StoredRange):
    """Bytes of an object, which live on here when the object is deleted."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    @property
    def file_region(self) -> FileRegion | None:
        """Return None: there is no file."""
        return None

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in order."""
        for start in range(0, len(self._view), _READ_BYTES):
            yield self._view[start : start + _READ_BYTES]

    def close(self) -> None:
        """Do nothing: memory needs no closing."""


class MemoryStaged(Staged):
    """Staged bytes of a `MemoryStore`; until `rewind` they may be an object's."""

    def __init__(self, store: MemoryStore, upload_id: str) -> None:
        self._store = store
        self._upload_id = upload_id
        self._algorithm: str | None = None
        self._state = State.OPENED
        self._is_object = upload_id not in store.staged
        self._data = (
            bytearray(store.objects[upload_id]) if self._is_object else store.staged[upload_id]
        )

    @property
    def offset(self) -> int:
        """Return how many bytes are staged."""
        return len(self._data)

    def rewind(
        self,
        offset: int,
        digests: Mapping[str, str] | None = None,  # noqa: ARG002 - the bytes are at hand
        algorithm: str | None = None,
    ) -> None:
        """Cut the bytes off at `offset`; then they are staged, also if they were an object."""
        if self._state is not State.OPENED:
            self._check_held()
        if not 0 <= offset <= self.offset:
            raise ObjectUnknown(self._upload_id)
        if self._is_object:
            with self._store.lock:
                del self._store.objects[self._upload_id]
                self._store.staged[self._upload_id] = self._data
            self._is_object = False
        del self._data[offset:]
        self._algorithm = algorithm
        self._state = State.HELD

    def write(self, view: memoryview, /) -> None:
        """Append bytes."""
        self._check_held()
        self._data += view

    def flush(self) -> Mapping[str, str]:
        """Return the digests of everything staged; memory is as durable as it gets."""
        self._check_held()
        return self._digests(self._algorithm)

    def commit(self, expected: Digest) -> Stored:
        """Verify the bytes against `expected` and make them an object."""
        self._check_held()
        try:
            digest, alias = verified(self._digests(expected.algorithm), expected)
        except DigestMismatch:
            self.discard()
            raise
        with self._store.lock:
            self._store.objects[self._upload_id] = bytes(self._data)
            del self._store.staged[self._upload_id]
        self._state = State.COMMITTED
        size = len(self._data)
        return Stored(self._upload_id, digest, alias, size, size, "plain")

    def discard(self) -> None:
        """Delete the staged bytes; an object, or bytes let go before, are left alone."""
        if self._state not in (State.OPENED, State.HELD):
            return
        if not self._is_object:
            with self._store.lock:
                del self._store.staged[self._upload_id]
        self.close()

    def close(self) -> None:
        """Let go of the bytes and keep them."""
        if self._state is not State.ENDED:
            self._state = State.ENDED
            with self._store.lock:
                self._store.held.discard(self._upload_id)

    def _check_held(self) -> None:
        if self._state is not State.HELD:
            raise ValueError(f"the staged bytes are {self._state.value}")

    def _digests(self, algorithm: str | None) -> dict[str, str]:
        data = bytes(self._data)
        digests = (digest_of(data, name) for name in wanted_algorithms(algorithm))
        return {digest.algorithm: digest.partition(":")[2] for digest in digests}


if TYPE_CHECKING:
    _: type[BlobStore] = MemoryStore
