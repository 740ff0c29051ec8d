"""Bind repositories, or all of an account without a binding of their own, to KMS keys.

A binding applies to later pushes; blobs stay under their former key until they are pushed or
rewrapped. A key protects the blobs, in repositories and buckets, that deleting it would shred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.kms.key import Key, KeyState
from cloudcore.kms.rows import KEY_ROWS, find_platform_key, hold_key
from cloudcore.kms.rules import KeyMissing, check_bindable
from cloudcore.storage.pieces import keys as piece_keys
from cloudcore.storage.pieces.keys import KeyedPieces
from registry.metadata import encryption_bindings as rows
from registry.metadata import key_usage as usage
from registry.metadata.encryption_bindings import BindingSource, BoundKey
from registry.metadata.key_usage import KeyImage, WrappedBlobs
from registry.services.repositories.names import lock_existing_repository

BindingStatus = Literal["active", "key_disabled", "key_deleted", "ended"]
"""The status of a binding; ``key_disabled`` also while the deletion of its key is pending."""

_STATUS_OF: dict[KeyState, BindingStatus] = {
    "enabled": "active",
    "disabled": "key_disabled",
    "pending_deletion": "key_disabled",
    "deleted": "key_deleted",
}


class EffectiveBinding(NamedTuple):
    """The binding that decides the key of new blobs."""

    source: BindingSource
    id: str | None
    """None for the platform key, which nobody has bound."""
    key: BoundKey | None
    """None if the account has no keys, so its blobs are not encrypted."""
    created_at: int | None
    is_changed: bool = False
    """True if the request has made this binding."""


class KeyToBind(NamedTuple):
    """The key to bind a repository or an account to."""

    id: str
    binding_id: str
    """Of the binding, if one is made."""


def status_of(state: KeyState, ended_at: int | None = None) -> BindingStatus:
    """Return the status of a binding to a key in this state."""
    return _STATUS_OF[state] if ended_at is None else "ended"


def effective_binding(
    tx: Connection, account_id: str, repository_id: str | None
) -> EffectiveBinding:
    """Return the binding of a repository, else its account's default, else the platform key."""
    if repository_id is not None:
        own = rows.find_binding(tx, account_id, repository_id)
        if own is not None:
            return EffectiveBinding("repository", own.id, own.key, own.created_at)
    default = rows.find_binding(tx, account_id, None)
    if default is not None:
        return EffectiveBinding("account", default.id, default.key, default.created_at)
    key = find_platform_key(tx, account_id)
    bound = BoundKey(key.id, key.account_id, key.region, key.name, key.state) if key else None
    return EffectiveBinding("platform", None, bound, None)


def bind_key(
    tx: Connection, account_id: str, repository_id: str | None, new: KeyToBind, now: int
) -> EffectiveBinding:
    """Bind a repository, or the account itself, to a key; an earlier binding ends.

    A binding to the same key stays as it is. Nobody disables or deletes the key meanwhile.

    Raises:
        KeyMissing: there is no such key any more.
        InvalidInput: the key is not enabled any more, or cannot encrypt data keys.
        NotFound: the repository was deleted meanwhile.

    """
    _lock(tx, account_id, repository_id)
    hold_key(tx, account_id, new.id)
    key = KEY_ROWS.find(tx, account_id, new.id)
    if key is None or key.state == "deleted":
        raise KeyMissing
    check_bindable(key)
    before = rows.find_binding(tx, account_id, repository_id)
    if before is None or before.key.id != new.id:
        rows.end_binding(tx, account_id, repository_id, now)
        rows.add_binding(tx, new.binding_id, account_id, repository_id, new.id, now)
    effective = effective_binding(tx, account_id, repository_id)
    return effective._replace(is_changed=effective.id == new.binding_id)


def unbind(tx: Connection, account_id: str, repository_id: str | None, now: int) -> None:
    """End the binding of a repository, or of the account itself, or raise NotFound."""
    _lock(tx, account_id, repository_id)
    if not rows.end_binding(tx, account_id, repository_id, now):
        whose = "the account" if repository_id is None else "the repository"
        raise NotFound(f"{whose} is bound to no key of its own")


def _lock(tx: Connection, account_id: str, repository_id: str | None) -> None:
    if repository_id is None:
        lock_account(tx, account_id)
    else:
        lock_existing_repository(tx, repository_id)


MOST_LISTED: Final = 100
"""The most repositories and images that are named."""


class KeyUsage(NamedTuple):
    """The repositories, blobs, images and buckets that a key protects."""

    key: Key
    is_account_default: bool
    repository_count: int
    repositories: Sequence[tuple[str, str]]
    """(id, name) of the first of those bound to the key themselves."""
    blobs: WrappedBlobs
    image_count: int
    images: Sequence[KeyImage]
    bucket_count: int
    buckets: Sequence[tuple[str, str]]
    """(id, name) of the first of those bound to the key themselves."""
    pieces: KeyedPieces
    """The content of buckets that is sealed under it, which no other key opens."""
    is_partial: bool
    """True if there is more than was read, so that the counts are lower bounds."""


def key_usage(
    tx: Connection, account_id: str, region: str, key_id: str, most: int = usage.MOST
) -> KeyUsage:
    """Return the resources that a key of an account protects, or raise KeyMissing.

    At most `most` rows of each kind are read.
    """
    key = KEY_ROWS.get(tx, account_id, region, key_id)
    repository_count = usage.count_bound_repositories(tx, account_id, key.id, most)
    blobs = usage.count_wrapped_blobs(tx, account_id, key.id, most)
    pieces = piece_keys.count_under(tx, account_id, key.id, most)
    bucket_count, buckets = piece_keys.bound_buckets(tx, account_id, key.id, MOST_LISTED)
    image_count, are_images_cut = usage.count_key_images(tx, account_id, key.id, most)
    return KeyUsage(
        key=key,
        is_account_default=usage.is_account_default(tx, account_id, key.id),
        repository_count=repository_count,
        repositories=usage.list_bound_repositories(tx, account_id, key.id, MOST_LISTED, most),
        blobs=blobs,
        image_count=image_count,
        images=usage.list_key_images(tx, account_id, key.id, MOST_LISTED, most),
        bucket_count=bucket_count,
        buckets=buckets,
        pieces=pieces,
        is_partial=are_images_cut or max(repository_count, blobs.total, pieces.pieces) >= most,
    )
