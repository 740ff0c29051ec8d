"""Find repositories by name for ``/v2``, create them by a first push, and list them.

Every change of a repository's content first locks the repository until the transaction ends. Only
the pull-through cache stores content under names that a cache rule covers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from registry.errors import ManifestUnknown, NameUnknown, RepositoryMirrored
from registry.metadata.pull_through.rules import find_rule_for, hold_account, prefix_over
from registry.metadata.repositories import repository as repositories
from registry.metadata.repositories.repository import Repository, VisibleRepository, lock_repository
from registry.oci.reference import Name
from registry.services.access.decisions import CREATE, Rights
from registry.services.changes import Change, record_change
from registry.services.context import ServiceContext
from registry.services.events import REPOSITORY_CREATED, RegistryEvent, publish


def check_unmirrored(tx: Connection, account_id: str, repository: str) -> None:
    """Check that no cache rule covers the name of a repository that the transaction has inserted.

    Call this after the insertion, whose foreign key waits for a rule that is just being created.
    Raise `RepositoryMirrored` if a rule covers the name.
    """
    prefix = prefix_over(tx, account_id, repository)
    if prefix is not None:
        raise _mirrored(repository, prefix)


def _mirrored(repository: str, prefix: str) -> RepositoryMirrored:
    """Return the error for a push to a name under the prefix of a rule."""
    return RepositoryMirrored(
        f"{repository} is under {prefix}/, which the pull-through cache fills from an upstream;"
        " nothing else can be stored there",
        prefix=prefix,
    )


class NamePage(NamedTuple):
    """A page of names in byte order; `has_more` is True if more follow."""

    names: list[str]
    has_more: bool
    is_cached: bool = False
    """True if the names are tags of a repository of the pull-through cache."""


def name_unknown(name: Name, why: str = "") -> NameUnknown:
    """Return the error for a missing repository; `why` says why it was not created."""
    return NameUnknown(f"there is no repository {name}{why and ', '}{why}", name=str(name))


def get_named_repository(tx: Connection, name: Name) -> Repository:
    """Return the repository of this name; raise `NameUnknown` if there is none."""
    found = repositories.find_repository(tx, name.handle, name.repository)
    if found is None:
        raise name_unknown(name)
    return found


def refuse_push(tx: Connection, repository: Repository) -> None:
    """Check that a repository accepts pushes; a repository left by a deleted cache rule does.

    Raise `RepositoryMirrored` if the pull-through cache fills it.
    """
    if repository.is_cached and prefix_over(tx, repository.account_id, repository.name) is not None:
        raise RepositoryMirrored(
            f"{repository.name} mirrors another registry: push there, or to another name",
            name=repository.name,
        )


def as_pushed_to(tx: Connection, repository: Repository) -> Repository:
    """Return the repository with `is_cached` False, since a push makes it an ordinary one.

    Until the transaction ends, no cache rule that covers its name can be created. Raise
    `RepositoryMirrored` if the pull-through cache fills it.
    """
    if not repository.is_cached:
        return repository
    hold_account(tx, repository.account_id)
    refuse_push(tx, repository)
    return repository._replace(is_cached=False)


def as_restored_in(tx: Connection, repository: Repository) -> Repository:
    """Return the repository with `is_cached` True only if a cache rule covers its name.

    Without a rule, a restored tag is like a pushed one. Until the transaction ends, no rule that
    covers the name can be created.
    """
    if not repository.is_cached:
        return repository
    hold_account(tx, repository.account_id)
    is_filled = prefix_over(tx, repository.account_id, repository.name) is not None
    return repository._replace(is_cached=is_filled)


def refuse_mirrored(tx: Connection, name: Name) -> None:
    """Check that a name accepts pushes, whether or not its repository exists.

    Raise `RepositoryMirrored` if the pull-through cache fills its repository, or a rule covers the
    name of a missing one.
    """
    found = repositories.find_repository(tx, name.handle, name.repository)
    if found is not None:
        refuse_push(tx, found)
        return
    rule = find_rule_for(tx, name.handle, name.repository)
    if rule is not None:
        raise _mirrored(name.repository, rule.prefix)


async def repository_for_push(ctx: ServiceContext, name: Name, rights: Rights) -> Repository:
    """Return the repository of this name; create it if the account and the caller's rights permit.

    There are several transactions: the caller's rights are evaluated outside of transactions, and a
    push to an existing repository writes nothing here.

    Raise `NameUnknown` if there is no such repository, and it cannot be created: there is no such
    account, its auto-create is off, or the caller may not create repositories. Raise
    `RepositoryMirrored` if the pull-through cache fills the repository, or a cache rule covers the
    name.
    """
    found = await ctx.database.read(_find_for_push, name)
    if found is not None:
        return found
    await ctx.database.read(refuse_mirrored, name)
    if not await rights.may_create(name):
        raise name_unknown(name, f"and you may not create it: that takes {CREATE} on {name}")
    change = ctx.change_by(rights.principal, rights.source, rights.client)
    return await ctx.database.write(_create, name, ctx.new_id(), change)


def _find_for_push(tx: Connection, name: Name) -> Repository | None:
    found = repositories.find_repository(tx, name.handle, name.repository)
    if found is not None:
        refuse_push(tx, found)
    return found


def _create(tx: Connection, name: Name, repository_id: str, change: Change) -> Repository:
    account = repositories.find_account(tx, name.handle)
    if account is None:
        raise name_unknown(name)
    if not account.auto_create_repositories:
        raise name_unknown(name, "and a push creates none in this account; create it first")
    found = repositories.find_or_add_repository(
        tx, repository_id, account, name.repository, change.now
    )
    if found.id == repository_id:
        check_unmirrored(tx, account.id, name.repository)
        record_change(tx, change, CREATE, found)
        publish(tx, change, found, [RegistryEvent(REPOSITORY_CREATED)])
    return found


async def list_catalog(
    ctx: ServiceContext,
    handle: str,
    after: str,
    limit: int,
    may_describe: Callable[[Name], Awaitable[bool]],
) -> NamePage:
    """Return a page of the full names of an account's repositories that sort after `after`.

    Repositories that the caller may not describe are left out. Each batch is a transaction of its
    own: between batches, policies are evaluated and other requests run.
    """
    prefix = f"{handle}/"
    if not after.startswith(prefix):
        if after > prefix:
            return NamePage([], has_more=False)
        after = prefix
    last = after.removeprefix(prefix)
    found: list[str] = []
    while len(found) <= limit:
        batch = await ctx.database.read(repositories.list_repository_names, handle, last, limit + 1)
        found += [name for name in batch if await may_describe(Name(handle, name))]
        if len(batch) <= limit:
            break
        last = batch[-1]
    return NamePage([prefix + name for name in found[:limit]], has_more=len(found) > limit)


def lock_named_repository(tx: Connection, name: Name) -> Repository:
    """Lock the repository of this name and return it; raise `NameUnknown` if there is none."""
    return lock_known_repository(tx, name, get_named_repository(tx, name).id)


def lock_known_repository(tx: Connection, name: Name, repository_id: str) -> Repository:
    """Lock a repository that was found by its name; raise `NameUnknown` if it is gone."""
    found = lock_repository(tx, repository_id)
    if found is None:
        raise name_unknown(name)
    return found


def lock_existing_repository(tx: Connection, repository_id: str) -> Repository:
    """Lock the repository with this id and return it; raise `NotFound` if there is none."""
    found = lock_repository(tx, repository_id)
    if found is None:
        raise NotFound("there is no such repository")
    return found


def lock_visible_repository(tx: Connection, found: VisibleRepository) -> Repository:
    """Lock a repository that a ``/v1`` caller may use; raise `ManifestUnknown` if it is gone."""
    repository = lock_repository(tx, found.repository.id)
    if repository is None:
        raise ManifestUnknown("there is no such repository")
    return repository
