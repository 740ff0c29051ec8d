"""Buckets over a database and a folder, without a server: two accounts and a clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.events import NO_EVENTS
from cloudcore.jobs.kinds import Done
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import Run, find_run
from cloudcore.metering.needs import Meter
from cloudcore.serving.asgi import Body
from cloudcore.storage import buckets, multipart, object_reads, object_writes, objects, upload_rows
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.bucket_rows import BucketUsage, usage_of_bucket
from cloudcore.storage.conditions import NO_CONDITIONS, RequestConditions
from cloudcore.storage.multipart import Completion, GivenPart
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.object_rows import Listing, ObjectAttributes, StoredObject, list_page
from cloudcore.storage.object_writes import Terms
from cloudcore.storage.pieces import rewrapping
from cloudcore.storage.pieces.cleanup import CONDEMNED_FOR, delete_condemned
from cloudcore.storage.pieces.keys import count_under
from cloudcore.storage.pieces.rows import Piece
from cloudcore.storage.upload_rows import Upload
from registry.blobstore.disk.store import FilesystemStore
from registry.buckets.store import BlobBucketBytes, BucketOrphans, KmsBucketKeys, Sealing
from registry.services.data_keys import DataKeys
from tests.inprocess import ManualClock
from tests.jobs import find_job, job_ids
from tests.kms_world import ACME, GLOBEX, KmsWorld, make_kms_world

T = TypeVar("T")

REGION: Final = "local"
INLINE_BYTES: Final = 1000
MIB: Final = 1 << 20


def body_of(*parts: bytes, is_complete: bool = True) -> Body:
    """Return bytes as the body of a request that comes in parts."""

    async def body(sink: Callable[[memoryview], None], finish: Callable[[bool], T], /) -> T:
        for part in parts:
            sink(memoryview(part))
        return finish(is_complete)

    return body


@dataclass
class StorageWorld:
    """Two accounts, ``acme`` and ``globex``, and what is done with their buckets."""

    database: Database
    store: FilesystemStore
    needs: StorageNeeds
    clock: ManualClock
    kms: KmsWorld

    async def make(self, name: str = "photos", account_id: str = ACME, **fields: str) -> Bucket:
        """Create a bucket."""
        now = self.clock()
        of = {"account_id": account_id, "region": REGION, "name": name, **fields}
        made = Bucket(id=uuid7(now), created_at=now, updated_at=now, **of)  # type: ignore[arg-type] # of texts
        return await self.database.write(buckets.create_bucket, made)

    async def put(
        self,
        bucket: Bucket,
        key: str,
        data: bytes = b"some bytes",
        *,
        attributes: ObjectAttributes = ObjectAttributes(),  # noqa: B008 - immutable
        terms: Terms = Terms(),  # noqa: B008
        conditions: RequestConditions = NO_CONDITIONS,
    ) -> StoredObject:
        """Store an object."""
        body = body_of(*(data[at : at + 65536] for at in range(0, len(data), 65536)))
        return await object_writes.store_object(
            self.needs, self.needs.events, bucket, key, attributes, body, terms, conditions
        )

    async def get(
        self, bucket: Bucket, key: str, start: int | None = None, stop: int | None = None
    ) -> bytes:
        """Return the bytes of an object, or of a range, read in both ways."""

        def ranged(size: int) -> tuple[int, int] | None:
            return None if start is None else (start, size if stop is None else stop)

        found = await object_reads.find_object(self.needs, bucket, key, ranged=ranged)
        async with aclosing(await object_reads.open_object(self.needs, found)) as opened:
            whole = b"".join(bytes(view) for view in opened.chunks())
            assert b"".join([part async for part in opened.stream()]) == whole
            assert opened.length == len(whole)
            return whole

    async def delete(self, bucket: Bucket, key: str) -> StoredObject | None:
        """Delete an object."""
        return await self.database.write(
            objects.delete_object, bucket, key, self.clock(), self.needs.events
        )

    async def page(
        self,
        bucket: Bucket,
        prefix: str = "",
        delimiter: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> Listing:
        """Return a page of objects."""
        return await self.database.read(list_page, bucket, prefix, delimiter, after, limit)

    async def begin(self, bucket: Bucket, key: str, **fields: object) -> Upload:
        """Begin a multipart upload."""
        upload = Upload(
            uuid7(self.clock()),
            bucket.id,
            bucket.account_id,
            key,
            ObjectAttributes(),
            None,
            None,
            self.clock(),
        )
        made = upload._replace(**fields)  # type: ignore[arg-type]
        return await self.database.write(multipart.create_upload, bucket, made, self.needs.bytes)

    async def part(
        self, bucket: Bucket, upload: Upload, number: int, data: bytes, **terms: object
    ) -> Piece:
        """Store a part."""
        asked = Terms(**terms)  # type: ignore[arg-type]
        return await object_writes.store_part(
            self.needs, bucket, upload.id, number, body_of(data), asked
        )

    async def complete(
        self, bucket: Bucket, upload: Upload, *parts: Piece | GivenPart, **asked: object
    ) -> StoredObject:
        """Complete an upload with parts."""
        given = [
            each if isinstance(each, GivenPart) else GivenPart(each.number, each.md5)
            for each in parts
        ]
        completion = Completion(upload.id, given, uuid7())._replace(**asked)  # type: ignore[arg-type]
        return await self.database.write(
            multipart.complete_upload,
            bucket,
            completion,
            self.clock(),
            self.needs.events,
        )

    async def abort(self, bucket: Bucket, upload: Upload) -> None:
        """Abort an upload."""
        await self.database.write(multipart.abort_upload, bucket, upload.id, self.clock())

    async def uploads(self, bucket: Bucket) -> list[str]:
        """Return the ids of open uploads."""
        found = await self.database.read(
            upload_rows.list_uploads, bucket.account_id, bucket.id, buckets.EVERY_KEY, (b"", ""), 99
        )
        return [each.id for each in found]

    async def held(self, bucket: Bucket) -> BucketUsage:
        """Return what a bucket holds."""
        return await self.database.read(usage_of_bucket, bucket.account_id, bucket.id)

    async def files(self) -> dict[str, int]:
        """Return what the store has: ids and sizes."""
        return {each.object_id: each.stored_size async for each in self.store.list_objects()}

    async def tags(self, bucket: Bucket, key: str, tags: Mapping[str, str]) -> StoredObject:
        """Replace the tags of an object."""
        return await self.database.write(objects.put_tags, bucket, key, tags)

    async def settle(self) -> int:
        """Let condemned bytes go; return how many pieces the store has."""
        self.clock.advance(CONDEMNED_FOR // MICROSECONDS + 1)
        await delete_condemned(self.needs)
        return len(await self.files())

    async def bind(self, bucket: Bucket, key_id: str | None) -> tuple[Bucket, Run]:
        """Bind a bucket to a key, as its route does; return the run that moves what is stored."""

        def change(tx: Connection) -> tuple[Bucket, Run]:
            now = self.clock()
            changed = buckets.BUCKETS.update(tx, bucket, {"kms_key_id": key_id}, now)
            return changed, rewrapping.start_rewrap(
                tx, changed, uuid7(), started_by="me", started_by_source=None, now=now
            )

        return await self.database.write(change)

    async def last_job(self) -> Job:
        """Return the job that was started last."""
        job = await self.database.read(find_job, (await self.database.read(job_ids))[-1])
        assert job is not None
        return job

    async def end_rewrap(self, run: Run) -> Run:
        """Take the steps of a run from where its job is; return what it is then."""
        job, is_over = await self.last_job(), False
        while not is_over:
            outcome = await rewrapping.run_step(self.needs, await self._run_now(run), job)
            assert outcome.change is not None
            await self.database.write(outcome.change)
            is_over = isinstance(outcome, Done)
            job = job if isinstance(outcome, Done) else job._replace(cursor=outcome.cursor)
        return await self._run_now(run)

    async def _run_now(self, run: Run) -> Run:
        found = await self.database.read(find_run, rewrapping.KIND, run.scope_id, run.id)
        assert found is not None
        return found

    async def under(self, key_id: str) -> tuple[int, ...]:
        """Return how many pieces a key protects, their bytes, and how many are objects."""
        return tuple(await self.database.read(count_under, ACME, key_id, 1000))


@asynccontextmanager
async def open_storage_world(
    database: Database, folder: Path, *, seals: bool = True
) -> AsyncIterator[StorageWorld]:
    """Open a world over an empty database."""
    kms = await make_kms_world(database)
    await kms.maker.add_missing_platform_keys(database, kms.clock())
    store = FilesystemStore(folder)
    try:
        yield storage_world(database, store, kms, seals=seals)
    finally:
        store.close()


def storage_world(
    database: Database, store: FilesystemStore, kms: KmsWorld, *, seals: bool = True
) -> StorageWorld:
    """Return the world of a database that has its accounts and their keys."""
    clock = kms.clock

    async def is_right_database() -> bool:
        return True

    needs = StorageNeeds(
        database=database,
        clock=clock,
        new_id=uuid7,
        bytes=BlobBucketBytes(
            store,
            Sealing(DataKeys(kms.vault), seals, INLINE_BYTES),
            BucketOrphans(store, clock, 7 * 24 * 3600 * 1_000_000, is_right_database),
            lambda: uuid7(clock()),
        ),
        keys=KmsBucketKeys(REGION),
        events=NO_EVENTS,
        account_bytes=100 * MIB,
        meter=Meter(clock, REGION),
    )
    return StorageWorld(database, store, needs, clock, kms)


__all__ = ["ACME", "GLOBEX", "StorageWorld", "body_of", "open_storage_world"]
