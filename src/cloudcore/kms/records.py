"""The bodies of ``/v1/keys``: requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from cloudcore.kms.rows import Key
from cloudcore.kms.specs import KeyOrigin, KeySpec, KeyState, KeyUsage
from cloudcore.uuids import Uuid
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

KeyName = Annotated[str, Meta(min_length=1, max_length=63)]
Description = Annotated[str, Meta(max_length=1000)]


class CreateKey(RequestBody):
    """A new key; its name, spec and usage are fixed."""

    name: KeyName
    key_spec: KeySpec = "aes-256"
    key_usage: KeyUsage | None = None
    """Without one, the first that the spec has: `encrypt_decrypt` for `aes-256` and `rsa-*`."""
    description: Description = ""
    tags: dict[str, str] = field(default_factory=dict)


class UpdateKey(RequestBody):
    """The fields to change; `tags` are replaced whole."""

    description: Description | UnsetType = UNSET
    tags: dict[str, str] | UnsetType = UNSET


class KeyQuery(PageQuery):
    """The filter of a list of keys."""

    state: KeyState | None = None
    """Without one, all but deleted keys."""


class DeletionQuery(Struct, kw_only=True):
    """Options of a deletion."""

    pending_window_days: Annotated[
        int, Meta(ge=7, le=30, description="Days until the key is deleted.")
    ] = 30


class KeyRecord(ResponseBody):
    """A key, without its material."""

    id: Uuid
    crn: str | None
    """Null once the key is deleted."""
    name: str | None
    """Null once the key is deleted; another key may have the name then."""
    description: str
    key_spec: KeySpec
    key_usage: KeyUsage
    state: KeyState
    origin: KeyOrigin
    """`platform`: made with the account; it can be neither disabled nor deleted."""
    current_version: int
    """The version that encrypts; older ones still decrypt."""
    deletion_at: RFC3339 | None
    """When the key will be, or was, deleted."""
    tags: dict[str, str]
    created_at: RFC3339
    updated_at: RFC3339


class OneKey(ResponseBody):
    """A key, wrapped."""

    key: KeyRecord


class ManyKeys(ResponseBody):
    """A page of keys."""

    keys: Sequence[KeyRecord]
    meta: PageMeta


class KeyVersionRecord(ResponseBody):
    """A version of a key."""

    version: int
    is_current: bool
    created_at: RFC3339


class ManyKeyVersions(ResponseBody):
    """A page of the versions of a key."""

    versions: Sequence[KeyVersionRecord]
    meta: PageMeta


def key_record(key: Key) -> KeyRecord:
    """Return the record of a key."""
    return KeyRecord(
        id=key.id,
        crn=key.crn,
        name=key.name,
        description=key.description,
        key_spec=key.key_spec,
        key_usage=key.key_usage,
        state=key.state,
        origin=key.origin,
        current_version=key.current_version,
        deletion_at=None if key.deletion_at is None else rfc3339(key.deletion_at),
        tags=dict(key.tags),
        created_at=rfc3339(key.created_at),
        updated_at=rfc3339(key.updated_at),
    )


def one_key(key: Key) -> OneKey:
    """Return the record of a key, wrapped."""
    return OneKey(key=key_record(key))
