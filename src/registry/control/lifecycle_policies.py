"""``/v1/repositories/{id}/lifecycle-policy``: its rules, a preview, and its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from litestar import post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.resource_names import Uuid
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery
from cloudcore.web.revisions import RevisionQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339
from registry.control.bodies import RunAnswers, RunRecord
from registry.control.repositories import authorized_repository, reference_of
from registry.control.visible_repositories import PATH, change_of
from registry.metadata.lifecycle_policies import StoredLifecyclePolicy
from registry.metadata.repositories.details import RepositoryDetails
from registry.services.lifecycle import rules as lifecycle
from registry.services.lifecycle.preview import Previews, read_expiring
from registry.services.lifecycle.runs import KIND, start_run

_PATH: Final = f"{PATH}/lifecycle-policy"
_PREVIEWS: Final = Previews()


class PutLifecyclePolicy(RequestBody):
    """A lifecycle policy to set."""

    rules: lifecycle.Rules


class PreviewLifecyclePolicy(RequestBody):
    """The rules to preview; by default those of the repository's policy."""

    rules: lifecycle.Rules | None = None


class StartRunQuery(msgspec.Struct):
    """The policy that a run is meant for."""

    revision: int | None = None
    """Start the run only if the policy still has this revision."""


class LifecyclePolicy(ResponseBody):
    """A repository's lifecycle policy."""

    repository: ResourceRef
    rules: Sequence[lifecycle.LifecycleRule]
    revision: int
    """Grows by one with every change."""
    next_run_at: RFC3339
    """When the next run is due; one can be started earlier."""
    updated_at: RFC3339


class PreviewedImage(ResponseBody):
    """An image that would expire."""

    id: Uuid
    digest: str
    media_type: str
    tags: Sequence[str]
    size_bytes: int
    pushed_at: RFC3339
    last_pulled_at: RFC3339 | None
    rule: int
    """Priority of the rule that expires it, or expires the image it goes with."""
    expires_with: str | None
    """Digest of the image it refers to and goes with; null if a rule expires it directly."""
    artifact_type: str | UnsetType = UNSET


class PreviewSummary(ResponseBody):
    """The totals of a run."""

    evaluated: int
    """Number of images in the repository."""
    expired: int
    """Number of images that would expire."""
    expired_by_rule: Mapping[str, int]
    """Numbers of images that would expire, by priority of the rule."""
    kept_by_rule: Mapping[str, int]
    """Numbers of images that `keep` or `keep_last` protects, by priority of the rule."""
    freed_bytes: int
    """Bytes of blobs that no image of the account would need any more. They are freed when the
    expired images can no longer be restored."""
    as_of: RFC3339
    """The moment against which ages are measured."""


class LifecyclePreview(ResponseBody):
    """A page of the images that would expire, newest first, and the totals of all pages."""

    images: Sequence[PreviewedImage]
    summary: PreviewSummary
    meta: PageMeta


class LifecycleRun(RunRecord):
    """A run of a policy."""

    started_by: str | None
    """CRN of the principal that started it; null if the schedule did."""
    evaluated: int
    expired: int
    freed_bytes: int
    """Bytes of blobs that no image of the account needs any more; see the preview."""


_RUN: Final = RunAnswers(LifecycleRun, KIND)


def _policy(
    ctx: RequestContext, repository: RepositoryDetails, stored: StoredLifecyclePolicy
) -> LifecyclePolicy:
    reference = reference_of(ctx, repository.account_id, repository.id, repository.name)
    rules = lifecycle.parse_rules(stored.document)
    return answer_of(LifecyclePolicy, stored, repository=reference, rules=rules)


_POLICY: Final = RecordAnswers(LifecyclePolicy, "lifecycle_policy", _policy)


@_POLICY.gets(_PATH, "registry:GetLifecyclePolicy")
async def get_lifecycle_policy(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a repository's lifecycle policy."""
    repository = await authorized_repository(ctx, repository_id)
    return _POLICY.one(
        ctx, repository, await ctx.database.read(lifecycle.get_policy, repository.id)
    )


@_POLICY.puts(_PATH, "registry:PutLifecyclePolicy", query=RevisionQuery, statuses=(409,))
async def put_lifecycle_policy(
    repository_id: FromPath[str], data: JSONBody[PutLifecyclePolicy], ctx: Context
) -> Reply[ResponseBody]:
    """Set the lifecycle policy of a repository, in place of any earlier one; it runs every day."""
    repository = await authorized_repository(ctx, repository_id)
    return await ctx.commit(
        lifecycle.put_policy,
        repository.id,
        data.rules,
        ctx.clock(),
        ctx.query(RevisionQuery).revision,
        wrap=partial(_POLICY.one, ctx, repository),
    )


@deletes(_PATH, "registry:DeleteLifecyclePolicy")
async def delete_lifecycle_policy(repository_id: FromPath[str], ctx: Context) -> None:
    """Delete a repository's lifecycle policy; a run under way stops."""
    repository = await authorized_repository(ctx, repository_id)
    await ctx.database.write(lifecycle.delete_policy, repository.id)


@post(
    f"{_PATH}/preview",
    status_code=200,
    opt={"action": "registry:GetLifecyclePolicy", "query": PageQuery},
)
async def preview_lifecycle_policy(
    repository_id: FromPath[str], ctx: Context, data: JSONBody[PreviewLifecyclePolicy | None] = None
) -> LifecyclePreview:
    """Return the images a run would delete now, by which rules, and the bytes this would free."""
    repository = await authorized_repository(ctx, repository_id)
    if data is None or data.rules is None:
        document = (await ctx.database.read(lifecycle.get_policy, repository.id)).document
    else:
        document = lifecycle.check_rules(data.rules)
    pager = ctx.pager(ctx.query(PageQuery), document)
    moment, after = pager.position or (ctx.clock(), None)
    found = await _PREVIEWS.get(ctx.database, repository.id, document, moment)
    # Ids sort by creation; `found.ids` has the newest first.
    begin = 0 if after is None else sum(each >= after for each in found.ids)
    ids = found.ids[begin : begin + pager.wanted]
    cut, meta = pager.cut(ids, len(found.ids), key=lambda each: (moment, each))
    taken = await ctx.database.read(
        read_expiring, repository.id, lifecycle.policy_of(document), found, cut
    )
    summary = answer_of(
        PreviewSummary,
        found,
        expired=len(found.ids),
        expired_by_rule={str(rule): count for rule, count in found.expired_by_rule.items()},
        kept_by_rule={str(rule): count for rule, count in found.kept_by_rule.items()},
        as_of=rfc3339(moment),
    )
    images = [
        answer_of(PreviewedImage, each.image, rule=each.priority, expires_with=each.expires_with)
        for each in taken
    ]
    return LifecyclePreview(images=images, summary=summary, meta=meta)


@_RUN.changes(
    f"{_PATH}/runs",
    "registry:StartLifecycleRun",
    status=202,
    query=StartRunQuery,
    statuses=(409,),
)
async def start_lifecycle_run(repository_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Run a repository's lifecycle policy now; if a run is under way, return that one."""
    repository = await authorized_repository(ctx, repository_id)
    return await ctx.commit(
        partial(start_run, revision=ctx.query(StartRunQuery).revision),
        repository.id,
        ctx.new_id(),
        change_of(ctx),
        wrap=_RUN.one,
        location=lambda run: f"/v1/repositories/{repository.id}/lifecycle-policy/runs/{run.id}",
    )


@_RUN.lists(f"{_PATH}/runs", "registry:GetLifecyclePolicy")
async def list_lifecycle_runs(repository_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the runs of a repository's lifecycle policies, newest first."""
    return await _RUN.page(ctx, (await authorized_repository(ctx, repository_id)).id)


@_RUN.gets(f"{_PATH}/runs/{{run_id:str}}", "registry:GetLifecyclePolicy")
async def get_lifecycle_run(
    repository_id: FromPath[str], run_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return a run of a repository's lifecycle policies: its progress or its outcome."""
    return await _RUN.get(ctx, (await authorized_repository(ctx, repository_id)).id, run_id)
