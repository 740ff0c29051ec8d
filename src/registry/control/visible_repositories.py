"""Authorize actions on any account's repository, by the caller's and the repository's policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from litestar import get
from litestar.params import FromPath

from cloudcore.errors import NotFound
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext, refusal
from cloudcore.wire import ResponseBody
from registry.metadata.repositories.repository import VisibleRepository, find_visible_repository
from registry.services.access.decisions import (
    AccessSubject,
    PolicyTooCostly,
    repository_crn,
    verdict_on,
)
from registry.services.changes import Change, RegistryHost
from registry.services.resource_kinds import REPOSITORY

PATH: Final = "/v1/repositories/{repository_id:str}"


async def authorized_visible_repository(
    ctx: RequestContext, repository_id: str
) -> VisibleRepository:
    """Return the repository with this id, if the caller may perform the route's action on it.

    As on the data plane, the caller's policies and the repository's decide: a caller of another
    account needs both to allow the action.

    Raise `AccessDenied` if the repository belongs to the caller's own account, and no policy allows
    the action; `NotFound` if no repository has this id, or the caller may not know of it.
    """
    account_id = account_of(ctx)
    action = ctx.action
    assert action is not None
    found = await ctx.database.read(find_visible_repository, repository_id)
    if found is None:
        raise _unknown()
    repository = found.repository
    region = ctx.settings.region
    subject = AccessSubject(ctx.caller, ctx.policies, ctx.source_ip)
    is_own = repository.account_id == account_id
    try:
        verdict = verdict_on(subject, action, found.target, repository.name, region, ctx.clock())
    except PolicyTooCostly:
        if is_own:
            raise
        raise _unknown() from None
    if not verdict.is_allowed:
        shown = verdict if ctx.allowed_somewhere else None
        raise refusal(action, shown) if is_own else _unknown()
    ctx.authorized.append((action, repository_crn(region, repository.account_id, repository.name)))
    return found


async def authorized_own(ctx: RequestContext, repository_id: str) -> VisibleRepository:
    """Return a repository of the caller's own account; see `authorized_visible_repository`.

    Use it for data that other accounts must not see: what was deleted and by whom, and what an
    image shares with other repositories.

    Raise `AccessDenied` if the repository belongs to the caller's own account, and no policy allows
    the action; `NotFound` if the caller's account has no repository with this id.
    """
    found = await authorized_visible_repository(ctx, repository_id)
    if found.repository.account_id != account_of(ctx):
        raise _unknown()
    return found


async def admit(ctx: RequestContext, parameters: Mapping[str, str]) -> None:
    """Authorize the route's action on the repository in the path.

    Raise what `authorized_visible_repository` raises.
    """
    await authorized_visible_repository(ctx, parameters["repository_id"])


def _unknown() -> NotFound:
    return NotFound("there is no such repository")


def change_of(ctx: RequestContext) -> Change:
    """Return the context of a change by this request: the caller, time and registry."""
    assert ctx.caller is not None
    host = RegistryHost(ctx.settings.region, ctx.settings.host)
    return Change(ctx.caller.crn, ctx.clock(), host, ctx.caller.source, details=ctx.details)


class AllowedActions(ResponseBody):
    """What the caller may do on a repository now."""

    actions: Sequence[str]
    """IAM actions, sorted. A request may be refused for another reason, such as a pin."""


@get(f"{PATH}/allowed-actions", opt={"action": "registry:DescribeRepositories"})
async def list_allowed_actions(repository_id: FromPath[str], ctx: Context) -> AllowedActions:
    """List the actions on a repository that its policy and the caller's policies allow."""
    found = await authorized_visible_repository(ctx, repository_id)
    subject = AccessSubject(ctx.caller, ctx.policies, ctx.source_ip)
    region, now, name = ctx.settings.region, ctx.clock(), found.repository.name
    return AllowedActions(
        actions=[
            action
            for action in sorted(REPOSITORY.actions)
            if verdict_on(subject, action, found.target, name, region, now).is_allowed
        ]
    )
