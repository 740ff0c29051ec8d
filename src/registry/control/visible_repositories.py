"""Who may see and change what a repository holds: its account's callers, and those it lets in."""

from __future__ import annotations

from typing import Final

from cloudcore.errors import NotFound
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext, refusal
from registry.metadata.repositories.visible import ImageRepository, find_image_repository
from registry.services.access import AccessSubject, PolicyTooCostly, repository_crn, verdict_on

PATH: Final = "/v1/repositories/{repository_id:str}"


async def authorized(ctx: RequestContext, repository_id: str) -> ImageRepository:
    """Return a repository in which the caller may do what the route does.

    The same policies decide as on the data plane, those of the repository too (rule 8).

    Raises:
        AccessDenied: the repository is of the caller's own account, and no policy allows it.
        NotFound: there is none of this id that the caller may know of.

    """
    account_id = account_of(ctx)
    action = ctx.action
    assert action is not None
    found = await ctx.database.read(find_image_repository, repository_id)
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
        told = verdict if ctx.allowed_somewhere else None
        raise refusal(action, told) if is_own else _unknown()
    ctx.authorized.append((action, repository_crn(region, repository.account_id, repository.name)))
    return found


async def authorized_own(ctx: RequestContext, repository_id: str) -> ImageRepository:
    """Return such a repository of the caller's own account.

    For what is no partner's business: what was deleted and by whom, and what an image shares
    with other repositories.
    """
    found = await authorized(ctx, repository_id)
    if found.repository.account_id != account_of(ctx):
        raise _unknown()
    return found


def _unknown() -> NotFound:
    return NotFound("there is no such repository")
