"""Two workers over one blob store, against dictionaries, in whatever order Hypothesis finds."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from registry.blobstore.base import DataKey, ObjectUnknown, StageBusy
from registry.blobstore.disk.files import DiskFiles
from registry.blobstore.disk.staged_file import StagedFile
from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.files import S3Files
from registry.blobstore.s3.uploads import Holds
from registry.blobstore.sealed.frame_format import sealed_size
from registry.errors import DigestMismatch
from registry.oci.digest import ALGORITHMS, digest_of
from tests.memory_store import MemoryFiles, MemoryStaged
from tests.property.machines import run_machine
from tests.s3_servers import credentials, settings_for
from tests.small_frames import KEY, PACKED_KEY, SMALL_BYTES, compressible, small_frames

MOST_WRITERS = 2
"""At once: with many, most steps would be the first of their upload."""
ALGORITHM = st.sampled_from(ALGORITHMS)
WORKER = st.integers(0, 1)
BLOCKS = st.integers(1, 3 * SMALL_BYTES).map(lambda size: bytes(range(256)) * (size // 256 + 1))


WRITTEN = st.runner().flatmap(lambda model: st.sampled_from(model.written()))
"""An upload whose writer may still write."""
ANY = st.runner().flatmap(lambda model: st.sampled_from(model.known()))
"""An upload or object, or one that is gone."""
has_written = precondition(lambda model: model.written())
has_any = precondition(lambda model: model.ids)


@dataclass
class Upload:
    """What a session's row would say, and what its writer has done since."""

    algorithm: str | None
    acknowledged: bytes = b""
    digests: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""
    writer: StagedFile | MemoryStaged | None = None
    is_committed: bool = False
    is_unverified: bool = False
    """A commit under a wrong digest may have made an object of it."""


class BlobStoreModel(RuleBasedStateMachine):
    """Rules of the seam; a subclass brings the stores of two workers."""

    key: DataKey | None = None
    keeps_unflushed = True
    """Whether bytes that were not flushed are there after their hold."""
    leaves_unverified = False
    """Whether bytes that a commit did not verify may be an object until their upload goes on.

    It has no row; so the scan for orphans finds what nobody goes on with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.uploads: dict[str, Upload] = {}
        self.objects: dict[str, bytes] = {}
        self.left: set[str] = set()
        """Uploads that were discarded and may be objects without a row."""
        self.workers: list[DiskFiles | MemoryFiles] = []

    @precondition(lambda self: len(self.written()) < MOST_WRITERS)
    @rule(worker=WORKER, algorithm=st.none() | ALGORITHM)
    def stage(self, worker: int, algorithm: str | None) -> None:
        upload_id = str(uuid.uuid4())
        writer = self.workers[worker].stage(upload_id, algorithm, self.key)
        self.uploads[upload_id] = Upload(algorithm, writer=writer)
        self.ids.append(upload_id)

    @has_written
    @rule(upload_id=WRITTEN, data=st.binary(max_size=40) | BLOCKS)
    def write(self, upload_id: str, data: bytes) -> None:
        upload, writer = self.held(upload_id)
        writer.write(memoryview(data))
        upload.data += data
        assert writer.offset == len(upload.data)

    @has_written
    @rule(upload_id=WRITTEN)
    def flush(self, upload_id: str) -> None:
        upload, writer = self.held(upload_id)
        upload.digests = dict(writer.flush())
        upload.acknowledged = upload.data
        for algorithm, value in upload.digests.items():
            assert digest_of(upload.data, algorithm) == f"{algorithm}:{value}"

    @has_any
    @rule(upload_id=ANY)
    def close(self, upload_id: str) -> None:
        upload = self.uploads.get(upload_id)
        if upload is not None and upload.writer is not None:
            upload.writer.close()
            upload.writer = None
            if not self.keeps_unflushed and not upload.is_committed:
                upload.data = upload.acknowledged

    @has_any
    @rule(upload_id=ANY, worker=WORKER)
    def resume(self, upload_id: str, worker: int) -> None:
        upload = self.uploads.get(upload_id)
        store = self.workers[worker]
        if upload is None:
            if upload_id in self.left:
                return
            with pytest.raises(ObjectUnknown):
                resume_and_go_on(store, upload_id, self.key)
        elif upload.writer is not None:
            with pytest.raises(StageBusy):
                store.resume(upload_id)
        else:
            upload.writer = store.resume(upload_id)
            if not self.key and self.keeps_unflushed:
                assert upload.writer.offset == len(upload.data)
            row = len(upload.acknowledged), upload.digests, upload.algorithm
            upload.writer.rewind(*row, self.key)
            upload.data, upload.is_unverified = upload.acknowledged, False
            if upload.is_committed:
                upload.is_committed = False
                del self.objects[upload_id]

    @has_written
    @rule(upload_id=WRITTEN, algorithm=ALGORITHM)
    def commit(self, upload_id: str, algorithm: str) -> None:
        upload, writer = self.held(upload_id)
        stored = writer.commit(digest_of(upload.data, algorithm))
        assert stored.digest == digest_of(upload.data)
        assert (stored.object_id, stored.size) == (upload_id, len(upload.data))
        upload.is_committed = True
        self.objects[upload_id] = upload.data

    @has_written
    @rule(upload_id=WRITTEN, algorithm=ALGORITHM)
    def commit_under_a_wrong_digest(self, upload_id: str, algorithm: str) -> None:
        upload, writer = self.held(upload_id)
        with pytest.raises(DigestMismatch):
            writer.commit(digest_of(upload.data + b"!", algorithm))
        upload.is_unverified = self.leaves_unverified

    @has_written
    @rule(upload_id=WRITTEN)
    def discard_by_its_writer(self, upload_id: str) -> None:
        _, writer = self.held(upload_id)
        writer.discard()
        del self.uploads[upload_id]

    @has_any
    @rule(upload_id=ANY, worker=WORKER)
    def discard(self, upload_id: str, worker: int) -> None:
        upload = self.uploads.get(upload_id)
        if upload is not None and upload.writer is not None and not upload.is_committed:
            with pytest.raises(StageBusy):
                self.workers[worker].discard(upload_id)
        elif upload is None or not upload.is_committed:
            self.workers[worker].discard(upload_id)
            if upload is not None and upload.is_unverified:
                self.left.add(upload_id)
            self.uploads.pop(upload_id, None)

    @has_any
    @rule(upload_id=ANY, worker=WORKER)
    def delete(self, upload_id: str, worker: int) -> None:
        upload = self.uploads.get(upload_id)
        if upload is None or (upload.is_committed and upload.writer is None):
            self.workers[worker].delete(upload_id)
            self.objects.pop(upload_id, None)
            self.uploads.pop(upload_id, None)
            self.left.discard(upload_id)

    @rule(worker=WORKER)
    def list_all(self, worker: int) -> None:
        self.check_lists(self.workers[worker])

    def check_lists(self, store: DiskFiles | MemoryFiles) -> None:
        sizes = {name: self.stored_size(data) for name, data in self.objects.items()}
        staged = {
            name: len(each.data) for name, each in self.uploads.items() if not each.is_committed
        }
        unverified = {
            name
            for name, each in self.uploads.items()
            if each.is_unverified and each.writer is None and not each.is_committed
        }
        objects = dict(store.list_objects())
        as_objects = unverified & set(objects)
        assert set(objects) - self.left == set(sizes) | as_objects
        assert all(objects[name] == size for name, size in sizes.items() if size is not None)
        found = dict(store.list_staged())
        staged = {name: size for name, size in staged.items() if name not in as_objects}
        assert set(found) == set(staged) if self.key else found == staged

    def stored_size(self, data: bytes) -> int | None:
        return sealed_size(len(data)) if self.key else len(data)

    @invariant()
    def every_object_reads_as_committed(self) -> None:
        """Read each object by one of the workers; they take turns."""
        self.workers.reverse()
        for object_id, data in self.objects.items():
            with closing(self.workers[0].open(object_id, len(data), self.key)) as stored:
                assert b"".join(bytes(chunk) for chunk in stored.chunks()) == data

    def written(self) -> list[str]:
        """Return the uploads whose writers may still write."""
        return [
            upload_id
            for upload_id, each in self.uploads.items()
            if each.writer is not None and not each.is_committed
        ]

    def known(self) -> list[str]:
        """Return the uploads and objects that there are, and the last two that are gone."""
        gone = [upload_id for upload_id in self.ids if upload_id not in self.uploads]
        return [*self.uploads, *gone[-2:]]

    def held(self, upload_id: str) -> tuple[Upload, StagedFile | MemoryStaged]:
        """Return an upload and its writer, which may still write."""
        upload = self.uploads[upload_id]
        assert upload.writer is not None
        return upload, upload.writer

    def teardown(self) -> None:
        if not self.workers:
            return
        store = self.workers[0]
        self.check_lists(store)
        for upload_id, upload in self.uploads.items():
            if upload.writer is not None:
                upload.writer.close()
            store.discard(upload_id)
        for object_id in {*self.objects, *self.left}:
            store.delete(object_id)


def resume_and_go_on(store: DiskFiles | MemoryFiles, upload_id: str, key: DataKey | None) -> None:
    """Resume what is not there; a store may find that out when it goes to an offset."""
    with closing(store.resume(upload_id)) as writer:
        writer.rewind(1, {}, None, key)


class FilesystemModel(BlobStoreModel):
    """Two stores over one folder, as two worker processes have them."""

    @initialize()
    def start(self) -> None:
        self.workers = list(_filesystem_workers())


class SealedModel(FilesystemModel):
    """The same with sealed bytes, in small frames."""

    key = KEY

    def __init__(self) -> None:
        super().__init__()
        self.frames = small_frames()
        self.frames.__enter__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.frames.__exit__(None, None, None)


class PackedModel(SealedModel):
    """The same with bytes that can be compressed."""

    key = PACKED_KEY

    @initialize()
    def start(self) -> None:
        self.workers = list(_filesystem_workers(compresses=True))

    @has_written
    @rule(upload_id=WRITTEN, seed=st.integers(0, 9), size=st.integers(1, 900))
    def write_compressible(self, upload_id: str, seed: int, size: int) -> None:
        self.write(upload_id, compressible(random.Random(seed), size))

    def stored_size(self, data: bytes) -> int | None:
        return None


class MemoryModel(BlobStoreModel):
    """One store; memory has no second worker."""

    @initialize()
    def start(self) -> None:
        self.workers = [MemoryFiles()] * 2


class S3Model(BlobStoreModel):
    """Two stores over one bucket, with parts of some hundred bytes."""

    keeps_unflushed = False
    leaves_unverified = True

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(credentials())
        self.stack.enter_context(small_frames())

    @initialize()
    def start(self) -> None:
        place, holds = settings_for("moto"), Holds()
        for _ in range(2):
            store = S3Files(Bucket(place), compresses=True, sizes=_small_parts, holds=holds)
            self.workers.append(cast("DiskFiles", self.stack.enter_context(closing(store))))

    def stored_size(self, data: bytes) -> int | None:
        return None if self.key else len(data)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.stack.close()


class SealedS3Model(S3Model):
    """The same with sealed bytes, of which most can be compressed."""

    key = PACKED_KEY


def _small_parts(number: int) -> int:
    return 300 + number


@cache
def _filesystem_workers(*, compresses: bool = False) -> tuple[DiskFiles, DiskFiles]:
    """Return stores that all examples share, for their 256 folders take time to make."""
    folder = Path(tempfile.mkdtemp(prefix="blobs-"))
    atexit.register(shutil.rmtree, folder)
    return DiskFiles(folder, compresses=compresses), DiskFiles(folder)


@pytest.mark.parametrize(
    ("model", "examples"),
    [
        (FilesystemModel, 20),
        (SealedModel, 15),
        (PackedModel, 15),
        (MemoryModel, 30),
        (S3Model, 4),
        (SealedS3Model, 4),
    ],
)
def test_a_store_is_its_model(model: type[BlobStoreModel], examples: int) -> None:
    run_machine(model, examples, 40)
