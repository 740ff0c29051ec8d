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
from blake3 import blake3
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from registry.blobstore.base import DataKey, ObjectUnknown, StageBusy, Stored
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
MOST_UPLOADS = 4
"""At once, with those that became objects: with many, most steps would be the first of theirs."""
ALGORITHM = st.sampled_from(ALGORITHMS)
WORKER = st.integers(0, 1)
SEED = st.integers(0, 9)
SIZE = st.sampled_from((3 * SMALL_BYTES, 0, 40)) | st.integers(1, 5 * SMALL_BYTES)
"""Of what is written: often several frames, and several of `_small_parts`."""
RANDOM = st.builds(lambda seed, size: random.Random(seed).randbytes(size), SEED, SIZE)
COMPRESSIBLE = st.builds(lambda seed, size: compressible(random.Random(seed), size), SEED, SIZE)


@dataclass
class Upload:
    """What a session's row would say, and what its writer has done since."""

    algorithm: str | None
    acknowledged: bytes = b""
    digests: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""
    writer: StagedFile | MemoryStaged | None = None
    known: Mapping[str, str] = field(default_factory=dict)
    """Digests that a writer was given for all of its bytes, and which its flush must return."""
    stored: Stored | None = None
    """What the commit returned; None while the bytes are staged."""
    worker: int = 0
    """Who held it last."""
    is_unverified: bool = False
    """A commit under a wrong digest may have made an object of it."""

    def is_held(self) -> bool:
        """Return True if its writer may still write."""
        return self.writer is not None and self.stored is None


class BlobStoreModel(RuleBasedStateMachine):
    """Steps of the seam; a subclass brings the stores of two workers.

    The steps are one rule. Hypothesis would leave out some of several rules in most examples, and
    without writes, flushes or resumes little happens.
    """

    key: DataKey | None = None
    blocks = RANDOM
    keeps_unflushed = True
    """Whether bytes that were not flushed are there after their hold."""
    leaves_unverified = False
    """Whether bytes that a commit did not verify may be an object until their upload goes on.

    It has no row; so the scan for orphans finds what nobody goes on with.
    """
    reads_all_after_each_step = True
    """If False, objects are read after their commit and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.uploads: dict[str, Upload] = {}
        self.left: set[str] = set()
        """Uploads that were discarded and may be objects without a row."""
        self.workers: list[DiskFiles | MemoryFiles] = []
        self.reader = 0

    @rule(
        choice=st.runner().flatmap(lambda model: st.sampled_from(model.choices())), draw=st.data()
    )
    def step(self, choice: tuple[str, str], draw: st.DataObject) -> None:
        name, upload_id = choice
        getattr(self, name)(upload_id, draw)

    def choices(self) -> list[tuple[str, str]]:
        """Return the steps that do something now, with their uploads; likelier ones repeatedly."""
        steps: list[tuple[str, str]] = []
        for upload_id, upload in self.uploads.items():
            steps += [(name, upload_id) for name in self.steps_of(upload)]
        has_room = len(self.uploads) < MOST_UPLOADS
        if has_room and sum(each.is_held() for each in self.uploads.values()) < MOST_WRITERS:
            steps += [("stage", str(uuid.uuid4()))] * 2
        gone = [upload_id for upload_id in self.ids if upload_id not in self.uploads]
        steps += [("find_nothing", upload_id) for upload_id in gone[-1:]]
        return steps + [("list_all", "")] * (len(self.uploads) > 1)

    def steps_of(self, upload: Upload) -> list[str]:
        """Return the steps that an upload can take."""
        is_crowded = len(self.uploads) > MOST_UPLOADS // 2
        if upload.is_held():
            often = ["close", "commit"] * 2 + ["append"] * 4 + ["write", "flush"] * 2
            rare = ["lose_the_row", "commit_under_a_wrong_digest", "find_it_busy"]
            return [*often, *rare, *["discard_by_its_writer"][:is_crowded]]
        if upload.writer is not None:
            return ["close"] * 4
        end = "discard" if upload.stored is None else "delete"
        return ["resume"] * (6 if upload.stored is None else 3) + [end][:is_crowded]

    def stage(self, upload_id: str, draw: st.DataObject) -> None:
        """Begin an upload."""
        algorithm = draw.draw(st.none() | ALGORITHM)
        worker = draw.draw(WORKER)
        writer = self.workers[worker].stage(upload_id, algorithm, self.key)
        self.uploads[upload_id] = Upload(algorithm, writer=writer, worker=worker)
        self.ids.append(upload_id)

    def write(self, upload_id: str, draw: st.DataObject) -> None:
        """Append bytes."""
        upload, writer = self.held(upload_id)
        data = draw.draw(self.blocks)
        writer.write(memoryview(data))
        upload.data += data
        upload.is_unverified = False
        upload.known = {}
        assert writer.offset == len(upload.data)

    def flush(self, upload_id: str, _: st.DataObject) -> None:
        """Flush the bytes, and acknowledge them."""
        upload, writer = self.held(upload_id)
        upload.digests = self.flushed(upload, writer)
        upload.acknowledged = upload.data

    def append(self, upload_id: str, draw: st.DataObject) -> None:
        """Write and flush, as a request of a chunk does."""
        self.write(upload_id, draw)
        self.flush(upload_id, draw)

    def lose_the_row(self, upload_id: str, _: st.DataObject) -> None:
        """Flush the bytes, but end before they are acknowledged."""
        upload, writer = self.held(upload_id)
        self.flushed(upload, writer)
        writer.close()
        upload.writer = None

    def flushed(self, upload: Upload, writer: StagedFile | MemoryStaged) -> dict[str, str]:
        """Flush; check the digests, and return them."""
        digests = dict(writer.flush())
        for algorithm, value in digests.items():
            assert digest_of(upload.data, algorithm) == f"{algorithm}:{value}"
        assert upload.known.items() <= digests.items()
        upload.is_unverified = False
        return digests

    def close(self, upload_id: str, _: st.DataObject) -> None:
        """End a hold."""
        upload = self.uploads[upload_id]
        assert upload.writer is not None
        upload.writer.close()
        upload.writer = None
        if not self.keeps_unflushed and upload.stored is None:
            upload.data = upload.acknowledged

    def resume(self, upload_id: str, draw: st.DataObject) -> None:
        """Hold an upload, or an object without a row, again.

        That another worker has made an object of parts to verify them, a worker of S3 that
        remembers the parts learns from an error.
        """
        upload = self.uploads[upload_id]
        upload.worker = upload.worker if upload.is_unverified else draw.draw(WORKER)
        writer = upload.writer = self.workers[upload.worker].resume(upload_id)
        if not self.key and self.keeps_unflushed:
            assert writer.offset == len(upload.data)
        is_unchanged = upload.stored is None and upload.data == upload.acknowledged
        upload.known = upload.digests if is_unchanged else {}
        writer.rewind(len(upload.acknowledged), upload.digests, upload.algorithm, self.key)
        upload.data, upload.is_unverified, upload.stored = upload.acknowledged, False, None
        assert writer.offset == len(upload.data)
        if draw.draw(st.booleans()):  # the digests of the row, if the worker has no hashers
            self.flush(upload_id, draw)

    def commit(self, upload_id: str, draw: st.DataObject) -> None:
        """Make the bytes an object."""
        upload, writer = self.held(upload_id)
        stored = upload.stored = writer.commit(digest_of(upload.data, draw.draw(ALGORITHM)))
        assert stored.digest == digest_of(upload.data)
        assert (stored.object_id, stored.size) == (upload_id, len(upload.data))
        assert self.stored_size(upload.data) in {stored.stored_size, None}
        self.read(upload)
        self.read_stored(upload)

    def commit_under_a_wrong_digest(self, upload_id: str, draw: st.DataObject) -> None:
        """Have a commit refused."""
        upload, writer = self.held(upload_id)
        with pytest.raises(DigestMismatch):
            writer.commit(digest_of(upload.data + b"!", draw.draw(ALGORITHM)))
        upload.is_unverified = self.leaves_unverified

    def discard_by_its_writer(self, upload_id: str, _: st.DataObject) -> None:
        """Discard an upload that is held."""
        self.held(upload_id)[1].discard()
        del self.uploads[upload_id]

    def discard(self, upload_id: str, draw: st.DataObject) -> None:
        """Discard an upload that nobody holds."""
        self.workers[draw.draw(WORKER)].discard(upload_id)
        if self.uploads.pop(upload_id).is_unverified:
            self.left.add(upload_id)

    def delete(self, upload_id: str, draw: st.DataObject) -> None:
        """Delete an object."""
        self.workers[draw.draw(WORKER)].delete(upload_id)
        del self.uploads[upload_id]

    def find_it_busy(self, upload_id: str, _: st.DataObject) -> None:
        """Try to resume and to discard what another holds."""
        for store in self.workers:
            with pytest.raises(StageBusy):
                store.resume(upload_id)
            with pytest.raises(StageBusy):
                store.discard(upload_id)

    def find_nothing(self, upload_id: str, draw: st.DataObject) -> None:
        """Try to resume, to discard and to delete what is gone."""
        store = self.workers[draw.draw(WORKER)]
        if upload_id not in self.left:
            with pytest.raises(ObjectUnknown):
                resume_and_go_on(store, upload_id, self.key)
        store.discard(upload_id)
        store.delete(upload_id)
        self.left.discard(upload_id)

    def list_all(self, _: str, draw: st.DataObject) -> None:
        """List objects and staged bytes."""
        self.check_lists(self.workers[draw.draw(WORKER)])

    def check_lists(self, store: DiskFiles | MemoryFiles) -> None:
        """Check that a store lists what there is."""
        committed = {
            upload_id: each.stored.stored_size
            for upload_id, each in self.uploads.items()
            if each.stored is not None
        }
        staged = {
            upload_id: len(each.data)
            for upload_id, each in self.uploads.items()
            if each.stored is None
        }
        objects = dict(store.list_objects())
        without_row = {
            upload_id
            for upload_id in objects.keys() & staged.keys()
            if self.uploads[upload_id].is_unverified and not self.uploads[upload_id].is_held()
        }
        for upload_id in without_row:
            del staged[upload_id]
        for upload_id in without_row | self.left:
            objects.pop(upload_id, None)
        assert objects == committed
        found = dict(store.list_staged())
        assert set(found) == set(staged) if self.key else found == staged

    def stored_size(self, data: bytes) -> int | None:
        """Return the size of stored bytes, or None if it cannot be told."""
        return sealed_size(len(data)) if self.key else len(data)

    @invariant()
    def every_object_reads_as_committed(self) -> None:
        """Read each object, if that takes no time."""
        if self.reads_all_after_each_step:
            self.read_all()

    def read_all(self) -> None:
        """Read each object by one of the workers; they take turns."""
        self.reader = 1 - self.reader
        for each in self.uploads.values():
            if each.stored is not None:
                self.read(each)

    def read(self, upload: Upload) -> None:
        """Read an object, and compare it."""
        assert upload.stored is not None
        object_id, data = upload.stored.object_id, upload.data
        with closing(self.workers[self.reader].open(object_id, len(data), self.key)) as opened:
            assert b"".join(bytes(chunk) for chunk in opened.chunks()) == data

    def read_stored(self, upload: Upload) -> None:
        """Read the stored bytes of a sealed object, and compare their checksum."""
        assert upload.stored is not None
        object_id, stored_size = upload.stored.object_id, upload.stored.stored_size
        if upload.stored.checksum is None:
            assert self.key is None
            return
        hasher = blake3()
        with closing(self.workers[self.reader].open_stored(object_id, stored_size)) as opened:
            for chunk in opened.chunks():
                hasher.update(chunk)
        assert hasher.hexdigest() == upload.stored.checksum

    def held(self, upload_id: str) -> tuple[Upload, StagedFile | MemoryStaged]:
        """Return an upload and its writer, which may still write."""
        upload = self.uploads[upload_id]
        assert upload.writer is not None
        return upload, upload.writer

    def teardown(self) -> None:
        if not self.workers:
            return
        try:
            self.check_lists(self.workers[0])
            self.read_all()
        finally:
            for each in self.uploads.values():
                if each.writer is not None:
                    each.writer.close()
            self.empty(self.workers[0])

    def empty(self, store: DiskFiles | MemoryFiles) -> None:
        """Delete what there is, since the next example has the same store."""
        for upload_id in {*self.uploads, *self.left}:
            store.discard(upload_id)
            store.delete(upload_id)
        assert not list(store.list_staged())
        assert not list(store.list_objects())


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
    blocks = RANDOM | COMPRESSIBLE

    @initialize()
    def start(self) -> None:
        self.workers = list(_filesystem_workers(compresses=True))

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
    reads_all_after_each_step = False

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

    def empty(self, store: DiskFiles | MemoryFiles) -> None:
        """Leave what there is: the next example has a prefix of its own."""

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.stack.close()


class SealedS3Model(S3Model):
    """The same with sealed bytes, of which most can be compressed."""

    key = PACKED_KEY
    blocks = RANDOM | COMPRESSIBLE


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
        (S3Model, 7),
        (SealedS3Model, 7),
    ],
)
def test_a_store_is_its_model(model: type[BlobStoreModel], examples: int) -> None:
    run_machine(model, examples, 35)
