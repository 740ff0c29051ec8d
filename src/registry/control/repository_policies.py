"""``/v1/repositories/{id}/policy``: the policy of a repository."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from litestar.params import FromPath, JSONBody

from cloudcore.iam.decision import Caller
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.revisions import RevisionQuery
from cloudcore.wire import RFC3339, ResponseBody
from registry.control.repositories import authorized_repository, crn_of_repository, reference_of
from registry.control.visible_repositories import PATH
from registry.metadata.repositories.details import RepositoryDetails
from registry.metadata.repositories.policies import StoredResourcePolicy
from registry.services.repositories import policies

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


def _answer(
    ctx: RequestContext, repository: RepositoryDetails, stored: StoredResourcePolicy
) -> RepositoryPolicy:
    reference = reference_of(ctx, repository.account_id, repository.id, repository.name)
    return answer_of(RepositoryPolicy, stored, repository=reference)


_POLICY: Final = RecordAnswers(RepositoryPolicy, "policy", _answer, noun="repository policy")


def _setter(ctx: RequestContext, repository: RepositoryDetails) -> policies.Setter:
    assert ctx.caller is not None
    return policies.Setter(
        caller=Caller(ctx.caller.crn, ctx.caller.account_id),
        identity=ctx.policies,
        source_ip=ctx.source_ip,
        resource=crn_of_repository(ctx, repository),
        account_id=repository.account_id,
        now=ctx.clock(),
    )


@_POLICY.gets(_PATH, "registry:GetRepositoryPolicy")
async def get_repository_policy(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a repository's policy."""
    repository = await authorized_repository(ctx, repository_id)
    return _POLICY.one(
        ctx, repository, await ctx.database.read(policies.get_resource_policy, repository.id)
    )


@_POLICY.puts(_PATH, "registry:PutRepositoryPolicy", query=PutPolicyQuery, statuses=(409,))
async def put_repository_policy(
    repository_id: FromPath[str], data: JSONBody[dict[str, Any]], ctx: Context
) -> Reply[ResponseBody]:
    """Set the policy of a repository, sent bare or under `policy`, in place of any earlier one.

    A policy that would take an action from the caller is refused, unless `force` is set.
    """
    repository = await authorized_repository(ctx, repository_id)
    query = ctx.query(PutPolicyQuery)
    return await ctx.commit(
        policies.put_resource_policy,
        repository.id,
        repository.account_id,
        data["policy"] if data.keys() == {"policy"} else data,
        ctx.clock(),
        None if query.force else _setter(ctx, repository),
        query.revision,
        wrap=partial(_POLICY.one, ctx, repository),
    )


@deletes(_PATH, "registry:DeleteRepositoryPolicy", query=RevisionQuery, statuses=(409,))
async def delete_repository_policy(repository_id: FromPath[str], ctx: Context) -> None:
    """Delete a repository's policy; from then on only its own account's policies count."""
    repository = await authorized_repository(ctx, repository_id)
    revision = ctx.query(RevisionQuery).revision
    await ctx.database.write(policies.delete_resource_policy, repository.id, revision)
