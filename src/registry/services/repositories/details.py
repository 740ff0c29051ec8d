"""Create, read, update and delete the repositories of an account for ``/v1``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.resource_names import check_tags
from registry.errors import NameInvalid
from registry.metadata.repositories import details as rows
from registry.metadata.repositories.details import RepositoryDetails
from registry.metadata.repositories.repository import NewRepository, add_repository, lock_repository
from registry.oci.reference import MAX_NAME_LENGTH, parse_name
from registry.services.changes import Change
from registry.services.encryption_bindings import KeyToBind, bind_key
from registry.services.events import REPOSITORY_CREATED, REPOSITORY_DELETED, RegistryEvent, publish
from registry.services.images.deletion import restorable_until
from registry.services.repositories.names import check_unmirrored, lock_existing_repository

MAX_EXCLUSIONS: Final = 5

_FILTER: Final = re.compile(r"[!-~]{0,210}")
_EXCLUSION: Final = re.compile(r"[A-Za-z0-9_.*-]{1,128}")


def create_repository(
    tx: Connection,
    account_id: str,
    repository_id: str,
    new: NewRepository,
    change: Change,
    key: KeyToBind | None = None,
) -> RepositoryDetails:
    """Create a repository and return it; bind it to `key`, unless that is None.

    Raises:
        Conflict: the account has a repository of this name.
        InvalidInput: the key cannot seal blobs now.
        KeyMissing: the key was deleted meanwhile.
        RepositoryMirrored: a pull-through cache rule covers the name.

    """
    if not add_repository(tx, repository_id, account_id, new, change.now):
        raise Conflict("there is a repository of this name", name=new.name)
    check_unmirrored(tx, account_id, new.name)
    repository = lock_repository(tx, repository_id)
    assert repository is not None
    if key is not None:
        bind_key(tx, account_id, repository_id, key, change.now)
    publish(tx, change, repository, [RegistryEvent(REPOSITORY_CREATED)])
    return get_repository(tx, account_id, repository_id)


def get_repository(tx: Connection, account_id: str, repository_id: str) -> RepositoryDetails:
    """Return a repository of an account; raise `NotFound` if there is none."""
    found = rows.find_repository_details(tx, account_id, repository_id)
    if found is None:
        raise NotFound("there is no such repository")
    return found


def update_repository(
    tx: Connection, account_id: str, repository_id: str, changes: Mapping[str, Any], now: int
) -> RepositoryDetails:
    """Apply `changes` to a repository and return it; a new value of `tags` replaces all of them."""
    lock_existing_repository(tx, repository_id)
    found = get_repository(tx, account_id, repository_id)
    known = {name: getattr(found, name) for name in NewRepository._fields}
    rows.store_repository_settings(tx, repository_id, NewRepository(**known | dict(changes)), now)
    return get_repository(tx, account_id, repository_id)


def delete_repository(
    tx: Connection, account_id: str, repository_id: str, change: Change, *, force: bool
) -> None:
    """Delete a repository; at once, its name is free and its content hidden.

    Raise `NotFound` if it does not exist, `Conflict` if it has images and `force` is False.
    """
    repository = lock_existing_repository(tx, repository_id)
    found = get_repository(tx, account_id, repository_id)
    if found.image_count and not force:
        raise Conflict(
            "the repository holds images; delete them or force", image_count=found.image_count
        )
    until = restorable_until(tx, account_id, change.now)
    rows.mark_deleted(tx, repository, change.deletion(until))
    publish(tx, change, repository, [RegistryEvent(REPOSITORY_DELETED)])


def check_repository(handle: str, new: NewRepository) -> None:
    """Check name, tags and exclusions of a new repository of the account `handle`.

    Raise `InvalidInput`, with ``field`` and ``reason``, if one is not allowed.
    """
    try:
        parse_name(f"{handle}/{new.name}")
    except NameInvalid:
        raise InvalidInput(
            "a repository's name is parts of a-z 0-9, joined by single . _ / or by __ or hyphens; "
            f"with {handle}/ before it, it has at most {MAX_NAME_LENGTH} characters",
            field="name",
            reason="malformed",
        ) from None
    check_tags(new.tags)
    check_exclusions(new.immutable_tag_exclusions)


def check_filters(name: str | None, name_prefix: str | None) -> None:
    """Check the filters of a list: no spaces, no non-ASCII text, at most 210 characters.

    Raise `InvalidInput`, with ``field`` and ``reason``, if one is not allowed.
    """
    for field, text in (("name", name), ("name_prefix", name_prefix)):
        if not _FILTER.fullmatch(text or ""):
            raise InvalidInput(
                f"{field}: no repository name can contain this, or be this long",
                field=field,
                reason="malformed",
            )


def check_exclusions(patterns: Sequence[str]) -> None:
    """Raise `InvalidInput` for too many tag patterns, or characters that no tag has."""
    if len(patterns) > MAX_EXCLUSIONS or not all(map(_EXCLUSION.fullmatch, patterns)):
        raise InvalidInput(
            f"at most {MAX_EXCLUSIONS} patterns of a tag's characters and *",
            field="immutable_tag_exclusions",
            reason="malformed",
        )
