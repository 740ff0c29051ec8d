"""Bind repositories, or an account's default, to KMS keys.

A binding applies to later pushes; blobs stay under their former key until they are pushed again or
rewrapped. The usage of a key is what its deletion would shred, in repositories and buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

from cloudcore.account_rows import lock_account
from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.kms.key import KeyState
from cloudcore.kms.rows import KEY_ROWS, find_platform_key, lock_key_shared
from cloudcore.kms.rules import KeyMissing, check_bindable
from cloudcore.storage.bucket import BUCKET
from cloudcore.storage.pieces import keys as piece_keys
from cloudcore.web.bodies import KeyReference, ResourceRef, reference_to
from cloudcore.wire import ResponseBody
from registry.metadata import encryption_bindings as rows
from registry.metadata import key_usage as usage
from registry.metadata.encryption_bindings import Binding
from registry.services.access.decisions import repository_reference
from registry.services.repositories.names import lock_existing_repository

BindingStatus = Literal["active", "key_disabled", "key_deleted", "ended"]
"""The status of a binding; ``key_disabled`` also while the deletion of its key is pending."""

_STATUS_OF: dict[KeyState, BindingStatus] = {
    "enabled": "active",
    "disabled": "key_disabled",
    "pending_deletion": "key_disabled",
    "deleted": "key_deleted",
}


class KeyToBind(NamedTuple):
    """A key, already checked, to which a repository or an account is to be bound."""

    id: str
    binding_id: str
    """The id of the new binding, if one is made."""


def status_of(state: KeyState, ended_at: int | None = None) -> BindingStatus:
    """Return the status of a binding to a key in this state; `ended_at` is None while active."""
    return _STATUS_OF[state] if ended_at is None else "ended"


def effective_binding(tx: Connection, account_id: str, repository_id: str | None) -> Binding:
    """Return the binding of a repository, else the account's default, else the platform key's.

    `repository_id` is None for the account's default itself.
    """
    for bound_id in dict.fromkeys((repository_id, None)):
        found = rows.find_binding(tx, account_id, bound_id)
        if found is not None:
            return found
    return Binding(None, None, None, None, find_platform_key(tx, account_id))


def bind_key(
    tx: Connection, account_id: str, repository_id: str | None, new: KeyToBind, now: int
) -> Binding:
    """Bind a repository, or the account itself, to a key; its previous binding ends.

    A binding to the same key stays as it is. The key cannot be disabled or deleted until `tx` ends.

    Raises:
        KeyMissing: there is no such key any more.
        InvalidInput: the key is not enabled any more, or cannot encrypt data keys.
        NotFound: the repository was deleted meanwhile.

    """
    _lock(tx, account_id, repository_id)
    lock_key_shared(tx, account_id, new.id)
    key = KEY_ROWS.find(tx, account_id, new.id)
    if key is None or key.state == "deleted":
        raise KeyMissing
    check_bindable(key)
    before = rows.find_binding(tx, account_id, repository_id)
    if before is None or before.key is None or before.key.id != new.id:
        rows.end_binding(tx, account_id, repository_id, now)
        rows.add_binding(tx, new.binding_id, account_id, repository_id, new.id, now)
    effective = effective_binding(tx, account_id, repository_id)
    return effective._replace(is_changed=effective.id == new.binding_id)


def unbind(tx: Connection, account_id: str, repository_id: str | None, now: int) -> None:
    """End the binding of a repository, or of the account itself; raise `NotFound` if not bound."""
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
"""The maximum number of repositories, images and buckets that are listed."""


class ProtectedImage(ResponseBody):
    """An image with blobs under a key."""

    repository: ResourceRef
    digest: str


class KeyUsageAnswer(ResponseBody):
    """What a key protects; when the key is deleted, all that only it opens is shredded."""

    kms_key: KeyReference
    is_account_default: bool
    """True if it seals what is pushed to repositories without a key of their own."""
    repository_count: int
    """Repositories that are bound to it themselves."""
    repositories: Sequence[ResourceRef]
    """The first 100 of them, by name."""
    blob_count: int
    """Blobs that it opens; of a deleted key, blobs that it opened."""
    exclusive_blob_count: int
    """Those that no other key opens, or only keys that are to be deleted too: its deletion shreds
    them."""
    exclusive_bytes: int
    """Their size."""
    image_count: int
    """Images with blobs that are read through it: without it they cannot be pulled."""
    images: Sequence[ProtectedImage]
    """The first 100 of them, by repository."""
    bucket_count: int
    """Buckets that are bound to it themselves."""
    buckets: Sequence[ResourceRef]
    """The first 100 of them, by name."""
    object_count: int
    """Objects of buckets with bytes that it opens: its deletion shreds them. Of a deleted key,
    objects that it opened."""
    object_bytes: int
    """The size of these bytes, and of parts of uploads."""
    is_partial: bool
    """True if more than 10,000 of a kind were found: then the counts are lower bounds."""


def key_usage(tx: Connection, account_id: str, region: str, key_id: str) -> KeyUsageAnswer:
    """Return what a key of an account protects; raise `KeyMissing` if there is no such key.

    At most `usage.MOST` rows of each kind are read.
    """
    key = KEY_ROWS.get(tx, account_id, region, key_id)
    repository_count = usage.count_bound_repositories(tx, account_id, key.id)
    blobs = usage.count_wrapped_blobs(tx, account_id, key.id)
    pieces = piece_keys.count_under(tx, account_id, key.id, usage.MOST)
    bucket_count, buckets = piece_keys.bound_buckets(tx, account_id, key.id, MOST_LISTED)
    image_count, are_images_cut = usage.count_key_images(tx, account_id, key.id)
    counts = repository_count, blobs.total, pieces.pieces
    reference = partial(repository_reference, region, account_id)
    bound = usage.list_bound_repositories(tx, account_id, key.id, MOST_LISTED)
    return KeyUsageAnswer(
        kms_key=reference_to(key),
        is_account_default=usage.is_account_default(tx, account_id, key.id),
        repository_count=repository_count,
        repositories=[reference(*each) for each in bound],
        blob_count=blobs.total,
        exclusive_blob_count=blobs.exclusive_count,
        exclusive_bytes=blobs.exclusive_bytes,
        image_count=image_count,
        images=[
            ProtectedImage(
                repository=reference(each.repository_id, each.repository), digest=each.digest
            )
            for each in usage.list_key_images(tx, account_id, key.id, MOST_LISTED)
        ],
        bucket_count=bucket_count,
        buckets=[
            ResourceRef(id=each, crn=BUCKET.crn(region, account_id, name), name=name)
            for each, name in buckets
        ],
        object_count=pieces.objects,
        object_bytes=pieces.size,
        is_partial=are_images_cut or max(counts) >= usage.MOST,
    )
