"""Create the repositories of the pull-through cache, by the first pull of their name."""

from __future__ import annotations

from typing import Final

from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from registry.metadata.pull_through.rules import CacheRule, find_rule_for
from registry.metadata.repositories import live as repositories
from registry.metadata.repositories.live import PULL_THROUGH_CACHE, Repository
from registry.oci.reference import Name
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.events import REPOSITORY_CREATED, RegistryEvent, publish
from registry.services.repositories.names import name_unknown

_KIND: Final = "pull-through-cache-rule"


def change_by_rule(ctx: ServiceContext, rule: CacheRule) -> Change:
    """Return the context of a change by the cache; its actor is the rule, not the client."""
    crn = Crn("registry", ctx.registry_host.region, rule.account_id, _KIND, rule.prefix)
    return ctx.change_by(str(crn))


async def cached_repository(ctx: ServiceContext, name: Name) -> Repository:
    """Return the cached repository of a name; create it if there is none and a rule has the name.

    The right to pull suffices: the rule is the permission.

    Raises:
        NameUnknown: no rule covers the name, or its repository is not a cached one.

    """
    found = await ctx.database.read(repositories.find_repository, name.handle, name.repository)
    if found is None:
        found = await ctx.database.write(_create, ctx, name, ctx.new_id())
    if not found.is_cached:
        raise name_unknown(name)
    return found


def _create(tx: Connection, ctx: ServiceContext, name: Name, repository_id: str) -> Repository:
    account = repositories.find_account(tx, name.handle)
    rule = find_rule_for(tx, name.handle, name.repository)
    if account is None or rule is None:
        raise name_unknown(name)
    change = change_by_rule(ctx, rule)
    found = repositories.find_or_add_repository(
        tx, repository_id, account, name.repository, change.now, source=PULL_THROUGH_CACHE
    )
    if found.id == repository_id:
        publish(tx, change, found, [RegistryEvent(REPOSITORY_CREATED)])
    return found
