"""Files of a cluster in its bucket, and S3 keys that allow access to these files alone.

Files are read and written as the bucket's account, so the account's quota and the KMS key of the
bucket apply to backups as to other objects. The S3 keys belong to a session of a role that the
platform makes in the account for each cluster. Each run of a backup program has its own session,
which ends with the run; all pushes of WAL share one session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.archive.driver import BackupFailed, BackupTarget, BucketGone
from cloudcore.db.base import Connection
from cloudcore.errors import PlatformError
from cloudcore.iam.service_roles import RoleRefused, RoleSession, ServiceRoles
from cloudcore.storage import multipart, object_reads, object_writes, objects
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.multipart import Completion, GivenPart
from cloudcore.storage.needs import StorageNeeds
from cloudcore.storage.object_rows import ObjectAttributes, ObjectEntry, list_page
from cloudcore.storage.tables import BUCKET_ROWS
from cloudcore.storage.upload_rows import Upload

T = TypeVar("T")

PART_BYTES: Final = 64 << 20
"""The size of the parts of an object that comes as a stream: 10,000 parts are 625 GiB."""
_PAGE: Final = 500


class ByteSource(Protocol):
    """A source of bytes, such as the output of a program."""

    async def read(self, count: int, /) -> bytes:
        """Return at most `count` bytes, or empty bytes at the end."""


def text(content: bytes) -> ByteSource:
    """Return a source of these few bytes."""
    made = asyncio.StreamReader()
    made.feed_data(content)
    made.feed_eof()
    return made


def folder_of(cluster_id: str) -> str:
    """Return the prefix of a cluster's object keys."""
    return f"entrepot/{cluster_id}/"


async def find_bucket(needs: StorageNeeds, target: BackupTarget) -> Bucket:
    """Return the bucket of a cluster's backups; raise `BucketGone` if it was deleted."""
    found = await needs.database.read(BUCKET_ROWS.find, target.account_id, target.bucket_id)
    if found is None:
        raise BucketGone("the bucket of the cluster's backups was deleted")
    return found


async def list_files(needs: StorageNeeds, bucket: Bucket, prefix: str) -> Sequence[ObjectEntry]:
    """Return all objects whose keys begin with a prefix."""
    found: list[ObjectEntry] = []
    after: str | None = ""
    while after is not None:
        page = await needs.database.read(list_page, bucket, prefix, "", after, _PAGE)
        found += page.entries
        after = page.next_after
    return found


async def delete_files(needs: StorageNeeds, bucket: Bucket, prefix: str) -> None:
    """Delete all objects whose keys begin with a prefix."""
    while True:
        page = await needs.database.read(list_page, bucket, prefix, "", "", _PAGE)
        if not page.entries:
            return
        keys = [entry.key for entry in page.entries]
        await needs.database.write(
            objects.delete_objects, bucket, keys, needs.clock(), needs.events
        )


async def store(needs: StorageNeeds, bucket: Bucket, key: str, source: ByteSource) -> int:
    """Store the bytes of a source as one object, completely or not at all; return its size.

    Raise `PlatformError` if the account has no room, the KMS key is unusable, or the store failed.
    """
    now = needs.clock()
    upload = Upload(
        needs.new_id(), bucket.id, bucket.account_id, key, ObjectAttributes(), None, None, now
    )
    await needs.database.write(multipart.create_upload, bucket, upload, needs.bytes)
    try:
        parts: list[GivenPart] = []
        size = 0
        while True:
            part = _Part(source)
            number = len(parts) + 1
            piece = await object_writes.store_part(needs, bucket, upload.id, number, part)
            size += part.size
            parts.append(GivenPart(number, piece.md5))
            if part.is_last:
                break
        asked = Completion(upload.id, parts, needs.new_id())
        await needs.database.write(
            multipart.complete_upload, bucket, asked, needs.clock(), needs.events
        )
    except BaseException:
        await asyncio.shield(needs.database.write(_abort, bucket, upload.id, needs.clock()))
        raise
    return size


async def read(needs: StorageNeeds, bucket: Bucket, key: str) -> AsyncIterator[bytes]:
    """Yield the bytes of an object.

    Raise `PlatformError` if there is no such object, its KMS key is unusable, or the store failed.
    """
    found = await object_reads.find_object(needs, bucket, key)
    async with aclosing(await object_reads.open_object(needs, found)) as opened:
        async for part in opened.stream():
            yield part


def _abort(tx: Connection, bucket: Bucket, upload_id: str, now: int) -> None:
    with suppress(PlatformError):  # it is complete after all, or the bucket is gone
        multipart.abort_upload(tx, bucket, upload_id, now)


class _Part:
    """Reads the next `PART_BYTES` of a source as the body of one multipart part."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.size = 0
        self.is_last = False

    async def __call__(
        self, sink: Callable[[memoryview], None], finish: Callable[[bool], T], /
    ) -> T:
        while self.size < PART_BYTES:
            data = await self._source.read(min(1 << 18, PART_BYTES - self.size))
            if not data:
                self.is_last = True
                break
            self.size += len(data)
            await asyncio.to_thread(sink, memoryview(data))
        return await asyncio.to_thread(finish, True)  # noqa: FBT003 - the signature of an end


_SHARED_SECONDS: Final = 3600
_RENEWED_SECONDS: Final = 900
"""A shared session is replaced this long before it expires."""


class Keys(NamedTuple):
    """A bucket, and a session whose credentials allow access to one cluster's files in it."""

    bucket: Bucket
    session: RoleSession


@dataclass(slots=True)
class BucketAccess:
    """Opens and ends sessions that may access the files of one cluster."""

    storage: StorageNeeds
    roles: ServiceRoles
    _role_ids: dict[str, str] = field(default_factory=dict)
    _shared: dict[str, Keys] = field(default_factory=dict)

    @asynccontextmanager
    async def keys(self, target: BackupTarget, name: str, seconds: int) -> AsyncIterator[Keys]:
        """Yield keys that expire after `seconds`, or at the end of the block.

        `name` is the session's name. Raise `BackupFailed` if the bucket was deleted, or the account
        is suspended.
        """
        made = await self._begin(target, name, seconds)
        try:
            yield made
        finally:
            await self.storage.database.write(
                self.roles.end, target.account_id, name, self.storage.clock()
            )

    async def shared_keys(self, target: BackupTarget) -> Keys:
        """Return the keys that all pushes of WAL share, valid for at least 15 minutes.

        Raises:
            BackupFailed: as `keys`.

        """
        held = self._shared.get(target.cluster_id)
        least = self.storage.clock() + _RENEWED_SECONDS * MICROSECONDS
        if held is None or held.session.expires_at < least:
            held = await self._begin(target, f"{target.cluster_id}-wal", _SHARED_SECONDS)
            self._shared[target.cluster_id] = held
        return held

    async def forget(self, target: BackupTarget) -> None:
        """Delete the role of a cluster, which also ends all its sessions."""
        self._shared.pop(target.cluster_id, None)
        self._role_ids.pop(target.cluster_id, None)

        def remove(tx: Connection, now: int) -> None:
            role_id = self.roles.platform_role(tx, target.account_id, _name(target), _NOTHING, now)
            self.roles.remove_platform_role(tx, target.account_id, role_id)

        await self.storage.database.write(remove, self.storage.clock())

    async def _begin(self, target: BackupTarget, name: str, seconds: int) -> Keys:
        bucket = await find_bucket(self.storage, target)
        try:
            role_id = await self._role_id(target, bucket)
            try:
                session = await self.roles.begin(target.account_id, role_id, name, seconds)
            except RoleRefused:  # another process has deleted it, with a cluster's last backup
                self._role_ids.pop(target.cluster_id, None)
                role_id = await self._role_id(target, bucket)
                session = await self.roles.begin(target.account_id, role_id, name, seconds)
        except RoleRefused as refused:
            raise BackupFailed(f"the bucket of backups cannot be used: {refused}") from None
        return Keys(bucket, session)

    async def _role_id(self, target: BackupTarget, bucket: Bucket) -> str:
        """Return the id of a cluster's role, which the first call in a process makes or updates."""
        known = self._role_ids.get(target.cluster_id)
        if known is None:
            known = await self.storage.database.write(
                self.roles.platform_role,
                target.account_id,
                _name(target),
                policy_of(bucket, target.cluster_id),
                self.storage.clock(),
            )
            self._role_ids[target.cluster_id] = known
        return known


_NOTHING: Final[Mapping[str, object]] = {
    "version": "1",
    "statements": [{"effect": "deny", "actions": ["storage:*"], "resources": ["*"]}],
}


def policy_of(bucket: Bucket, cluster_id: str) -> Mapping[str, object]:
    """Return a policy that allows access to the files of one cluster, and listing the bucket."""
    below = f"{bucket.crn}/{folder_of(cluster_id)}*"
    files = ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload")
    statements = [
        ([f"storage:{each}" for each in files], below),
        (["storage:ListObjects"], bucket.crn),
    ]
    return {
        "version": "1",
        "statements": [
            {"effect": "allow", "actions": actions, "resources": [resource]}
            for actions, resource in statements
        ],
    }


def _name(target: BackupTarget) -> str:
    return f"cluster-{target.cluster_id}"
