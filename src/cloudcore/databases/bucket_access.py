"""The S3 keys with which programs read and write the backups of one cluster, and nothing else.

They are a session of a role, which the platform makes in the account for each cluster. A run has a
session of its own, which ends with it; pushes of WAL share one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.databases.archive import BackupFailed, BackupTarget
from cloudcore.databases.bucket_files import find_bucket, folder_of
from cloudcore.db.base import Connection
from cloudcore.iam.service_roles import RoleRefused, RoleSession, ServiceRoles
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.needs import StorageNeeds

_SHARED_SECONDS: Final = 3600
_RENEWED_SECONDS: Final = 900
"""A shared session is replaced so long before it ends."""


class Keys(NamedTuple):
    """How a program reaches the bucket."""

    bucket: Bucket
    session: RoleSession


@dataclass(slots=True)
class BucketAccess:
    """Begins and ends sessions."""

    storage: StorageNeeds
    roles: ServiceRoles
    _role_ids: dict[str, str] = field(default_factory=dict)
    _shared: dict[str, Keys] = field(default_factory=dict)

    @asynccontextmanager
    async def keys(self, target: BackupTarget, name: str, seconds: int) -> AsyncIterator[Keys]:
        """Yield keys that end with the block, or after so many seconds.

        Raises:
            BackupFailed: the bucket was deleted, or the account is suspended.

        """
        made = await self._begin(target, name, seconds)
        try:
            yield made
        finally:
            await self.storage.database.write(
                self.roles.end, target.account_id, name, self.storage.clock()
            )

    async def shared_keys(self, target: BackupTarget) -> Keys:
        """Return keys that all pushes of WAL share.

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
        """Delete the role of a cluster, and with it all sessions."""
        self._shared.pop(target.cluster_id, None)
        self._role_ids.pop(target.cluster_id, None)

        def remove(tx: Connection, now: int) -> None:
            role_id = self.roles.platform_role(tx, target.account_id, _name(target), _NOTHING, now)
            self.roles.remove_platform_role(tx, target.account_id, role_id, now)

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
        """Return the role of a cluster; it is made, or renewed, once a process."""
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
    """Return what the role may: read and write its cluster's files, and list the bucket."""
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
