"""Part of the composition root: the KMS keys that buckets can be bound to."""

from __future__ import annotations

from cloudcore.db.base import Connection
from cloudcore.kms.key import Key
from cloudcore.kms.rows import KEY_ROWS, find_platform_key, key_to_bind
from cloudcore.resource_references import Authorize, Scope
from cloudcore.storage.needs import BucketKeys


class KeysOfBuckets(BucketKeys):
    """The keys of the accounts of one region."""

    def __init__(self, region: str) -> None:
        self._region = region

    def resolve(self, tx: Connection, account_id: str, value: str, authorize: Authorize) -> Key:
        """Return the key that a request names (`BucketKeys.resolve`)."""
        return key_to_bind(tx, Scope(account_id, self._region), value, authorize)

    def describe(self, tx: Connection, account_id: str, key_id: str | None) -> Key | None:
        """Return a key by its id, or the platform key (`BucketKeys.describe`)."""
        if key_id is None:
            return find_platform_key(tx, account_id)
        return KEY_ROWS.find(tx, account_id, key_id)
