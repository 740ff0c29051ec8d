"""Repositories by name: found, made by a first push, listed."""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.db.base import Connection
from registry.errors import NameUnknown
from registry.metadata import repositories
from registry.metadata.repositories import Repository
from registry.oci.reference import Name
from registry.services.context import Context


class Page(NamedTuple):
    """Names in byte order, and whether more follow."""

    names: list[str]
    has_more: bool


def name_unknown(name: Name) -> NameUnknown:
    """Return the error for a repository that is not there."""
    return NameUnknown(f"there is no repository {name}", name=str(name))


async def find_repository(ctx: Context, name: Name) -> Repository:
    """Return the repository of this name.

    Raises:
        NameUnknown: there is none.

    """
    found = await ctx.database.read(repositories.find_repository, name.handle, name.repository)
    if found is None:
        raise name_unknown(name)
    return found


async def repository_for_push(ctx: Context, name: Name) -> Repository:
    """Return the repository of this name, made now when the account lets a push make it.

    Raises:
        NameUnknown: there is none, and none is made: no such account, or auto-create is off.

    """
    found = await ctx.database.read(repositories.find_repository, name.handle, name.repository)
    if found is not None:
        return found
    return await ctx.database.write(_create, name, ctx.new_id(), ctx.clock())


def _create(tx: Connection, name: Name, repository_id: str, now: int) -> Repository:
    account = repositories.find_account(tx, name.handle)
    if account is None or not account.auto_create_repositories:
        raise name_unknown(name)
    return repositories.add_repository(tx, repository_id, account, name.repository, now)


async def list_repositories(ctx: Context, handle: str, after: str, limit: int) -> Page:
    """Return a page of an account's repositories as full names after the full name `after`."""
    prefix = f"{handle}/"
    if not after.startswith(prefix):
        if after > prefix:
            return Page([], has_more=False)
        after = prefix
    names = await ctx.database.read(
        repositories.list_repository_names, handle, after.removeprefix(prefix), limit + 1
    )
    return Page([prefix + name for name in names[:limit]], has_more=len(names) > limit)


def lock(tx: Connection, name: Name, repository_id: str) -> Repository:
    """Return the repository locked for a change."""
    found = repositories.lock_repository(tx, repository_id)
    if found is None:
        raise name_unknown(name)
    return found
