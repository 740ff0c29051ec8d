"""``/v1/repositories/{id}/allowed-actions``: which actions the caller may do on a repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.web.context import RequestContext
from cloudcore.wire import ResponseBody
from registry.control.visible_repositories import PATH, authorized_visible_repository
from registry.services.access import AccessSubject, verdict_on
from registry.services.resource_kinds import REPOSITORY


class AllowedActions(ResponseBody):
    """What the caller may do on a repository now."""

    actions: Sequence[str]
    """IAM actions, sorted. A request may be refused for another reason, such as a pin."""


@get(f"{PATH}/allowed-actions", opt={"action": "registry:DescribeRepositories"})
async def list_allowed_actions(
    repository_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> AllowedActions:
    """List the actions that the caller's policies and the repository's allow the caller on it."""
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


HANDLERS: Final = (list_allowed_actions,)
