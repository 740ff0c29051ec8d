"""One row of each table of a small registry, for tests of the database alone."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import ClauseElement, bindparam

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement

ACCOUNT: Final = {
    "id": "account",
    "handle": "account",
    "status": "active",
    "auto_create_repositories": True,
    "created_at": 0,
}
REPOSITORY: Final = {
    "id": "repository",
    "account_id": "account",
    "name": "repository",
    "tag_mutability": "mutable",
    "source": "user",
    "created_at": 0,
    "updated_at": 0,
}
OBJECT: Final = {
    "id": "object",
    "account_id": "account",
    "digest": "sha256:layer",
    "size": 7,
    "stored_size": 7,
    "encoding": "plain",
    "is_current": True,
    "state": "live",
    "created_at": 0,
    "stored_id": "stored",
}
KEY: Final = {
    "id": "key",
    "account_id": "account",
    "region": "region",
    "name": "key",
    "description": "",
    "tags": "{}",
    "key_spec": "aes-256",
    "key_usage": "encrypt_decrypt",
    "state": "enabled",
    "origin": "customer",
    "current_version": 1,
    "created_at": 0,
    "updated_at": 0,
}
WRAP: Final = {
    "object_id": "object",
    "kms_key_id": "key",
    "account_id": "account",
    "wrapped_data_key": b"wrapped",
}
LINK: Final = {
    "repository_id": "repository",
    "digest": "sha256:layer",
    "account_id": "account",
    "object_id": "object",
    "size": 7,
    "manifest_refs": 1,
    "kms_key_id": "key",
    "touched_at": 0,
}
BODY: Final = {"account_id": "account", "digest": "sha256:manifest", "body": b"{}"}
MANIFEST: Final = {
    "id": "manifest",
    "repository_id": "repository",
    "account_id": "account",
    "digest": "sha256:manifest",
    "media_type": "type",
    "is_index": False,
    "manifest_size_bytes": 2,
    "size_bytes": 9,
    "annotations": "{}",
    "pushed_at": 0,
}
BLOB_EDGE: Final = {
    "manifest_id": "manifest",
    "digest": "sha256:layer",
    "repository_id": "repository",
}
CHILD_EDGE: Final = {
    "parent_id": "index",
    "child_digest": "sha256:manifest",
    "repository_id": "repository",
    "child_id": "manifest",
}
TAG: Final = {
    "repository_id": "repository",
    "name": "latest",
    "manifest_id": "index",
    "pushed_digest": "sha256:index",
    "created_at": 0,
    "updated_at": 0,
}
UPLOAD: Final = {
    "id": "upload",
    "repository_id": "repository",
    "account_id": "account",
    "received_bytes": 0,
    "stage_shared": False,
    "lease_token": 0,
    "created_at": 0,
    "expires_at": 0,
}


class Write(NamedTuple):
    """A write and what it is bound to."""

    construct: ClauseElement
    values: dict[str, Any]

    def run(self, connection: Connection) -> int:
        return connection.execute(Statement(self.construct), **self.values)


def insert(table: Any, base: dict[str, Any], **changed: Any) -> Write:  # noqa: ANN401
    """Write a row that differs from one of the content in `changed`."""
    values = {**base, **changed}
    return Write(table.insert().values({name: bindparam(name) for name in values}), values)
