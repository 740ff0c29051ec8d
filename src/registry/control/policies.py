"""``/v1/repositories/{id}/policy``: who else may use it; and what the caller may do there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from litestar import delete, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from cloudcore.iam.decision import Caller
from cloudcore.revisions import RevisionQuery
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.references import ResourceRef
from cloudcore.wire import RFC3339, ResponseBody, rfc3339
from registry.control.repositories import authorized_repository, crn_of
from registry.control.visible_repositories import (
    PATH,
    authorized_visible_repository,
    repository_ref,
)
from registry.metadata.repositories.details import RepositoryDetails
from registry.metadata.repositories.policies import StoredResourcePolicy
from registry.services.access import AccessSubject, verdict_on
from registry.services.repositories.policies import (
    Setter,
    delete_resource_policy,
    get_resource_policy,
    put_resource_policy,
)
from registry.services.resource_kinds import REPOSITORY

_PATH: Final = f"{PATH}/policy"


class PutPolicyQuery(RevisionQuery):
    """Options of setting a policy."""

    force: bool = False
    """Set the policy even if it denies the caller an action that is allowed without it."""


class RepositoryPolicy(ResponseBody):
    """A repository's policy."""

    repository: ResourceRef
    document: dict[str, Any]
    """As it was sent, with the id of the repository's account in place of its handle."""
    revision: int
    """Grows by one with every change, also when a policy is deleted and set again."""
    updated_at: RFC3339


class OneRepositoryPolicy(ResponseBody):
    """A repository's policy, wrapped."""

    policy: RepositoryPolicy


def _one(
    ctx: RequestContext, repository: RepositoryDetails, stored: StoredResourcePolicy
) -> OneRepositoryPolicy:
    return OneRepositoryPolicy(
        policy=RepositoryPolicy(
            repository=repository_ref(ctx, repository.account_id, repository.id, repository.name),
            document=stored.document,
            revision=stored.revision,
            updated_at=rfc3339(stored.updated_at),
        )
    )


def _setter(ctx: RequestContext, repository: RepositoryDetails) -> Setter:
    assert ctx.caller is not None
    return Setter(
        caller=Caller(ctx.caller.crn, ctx.caller.account_id),
        identity=ctx.policies,
        source_ip=ctx.source_ip,
        resource=crn_of(ctx, repository),
        account_id=repository.account_id,
        now=ctx.clock(),
    )


@get(_PATH, opt={"action": "registry:GetRepositoryPolicy"})
async def get_repository_policy(
    repository_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneRepositoryPolicy:
    """Return a repository's policy."""
    repository = await authorized_repository(ctx, repository_id)
    return _one(ctx, repository, await ctx.database.read(get_resource_policy, repository.id))


@put(
    _PATH,
    opt={
        "action": "registry:PutRepositoryPolicy",
        "query": PutPolicyQuery,
        "statuses": (409,),
    },
)
async def put_repository_policy(
    repository_id: FromPath[str],
    data: JSONBody[dict[str, Any]],
    ctx: NamedDependency[RequestContext],
) -> Reply[OneRepositoryPolicy]:
    """Set the policy of a repository, sent bare or under `policy`, in place of any earlier one.

    A policy that denies the caller an action it has without it is refused, unless `force` is set.
    """
    repository = await authorized_repository(ctx, repository_id)
    query = ctx.query(PutPolicyQuery)
    return await ctx.commit(
        put_resource_policy,
        repository.id,
        repository.account_id,
        data["policy"] if data.keys() == {"policy"} else data,
        ctx.clock(),
        None if query.force else _setter(ctx, repository),
        query.revision,
        wrap=partial(_one, ctx, repository),
    )


@delete(
    _PATH,
    opt={
        "action": "registry:DeleteRepositoryPolicy",
        "query": RevisionQuery,
        "statuses": (409,),
    },
)
async def delete_repository_policy(
    repository_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> None:
    """Delete a repository's policy; from then on only its own account's policies count."""
    repository = await authorized_repository(ctx, repository_id)
    revision = ctx.query(RevisionQuery).revision
    await ctx.database.write(delete_resource_policy, repository.id, revision)


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


HANDLERS: Final = (
    get_repository_policy,
    put_repository_policy,
    delete_repository_policy,
    list_allowed_actions,
)
