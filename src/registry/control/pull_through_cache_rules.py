"""``/v1/pull-through-cache-rules``: rules that cache an upstream's images under a prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from litestar import post
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from cloudcore.errors import InvalidInput
from cloudcore.identity.rows.accounts import find_account
from cloudcore.jobs.faults import Fault
from cloudcore.outbound.destinations import Allowed
from cloudcore.resources.bodies import Bodies, Composite
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import FaultRecord, fault_record
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of, rfc3339
from registry.control.repositories import uri_of
from registry.errors import NameInvalid
from registry.metadata.pull_through.cache_rule import CACHE_RULE, CacheRule
from registry.metadata.pull_through.rules import RuleDetails
from registry.metadata.pull_through.tables import CACHE_RULES
from registry.metadata.pull_through.upstream_states import UpstreamFault
from registry.oci.reference import Name, is_tag, parse_name
from registry.services.context import ServiceContext
from registry.services.pull_through import rules
from registry.services.pull_through.remote import (
    ImageToTest,
    UpstreamTest,
    ask_upstream,
    credential_of,
    seal_secret,
)
from registry.services.pull_through.rules import ShownRule, upstream_origin
from registry.services.pull_through.upstream_states import details, severity

_PATH: Final = CACHE_RULE.path
_ONE: Final = CACHE_RULE.path_of_one


class GivenCredential(RequestBody):
    """A credential for an upstream."""

    username: Annotated[str, Meta(min_length=1, max_length=255)]
    secret: Annotated[str, Meta(min_length=1, max_length=4096)]
    """A password or an access token; it is never shown again."""


class TestPullThroughCacheRule(RequestBody):
    """The image to look for upstream; without one, only check whether the upstream answers."""

    repository: Annotated[str, Meta(min_length=1, max_length=210)] | None = None
    """As it is pulled, without the rule's prefix: ``library/alpine``."""
    tag: Annotated[str, Meta(min_length=1, max_length=128)] = "latest"


class ShownCredential(ResponseBody):
    """The credential for an upstream; the secret is never shown."""

    username: str
    has_secret: bool


class CacheStats(ResponseBody):
    """What a rule has saved since it was created, and what it holds."""

    hits: int
    """Pulls of images that needed no manifest from the upstream."""
    misses: int
    """Pulls for which a manifest was fetched."""
    fetched_bytes: int
    saved_bytes: int
    """Bytes of blobs that clients got without a fetch from the upstream."""
    cached_images: int
    cached_bytes: int
    """Bytes of the distinct blobs of each cached repository, added up."""
    budget_left: int | None
    """Pulls that the upstream still allows, as it last said; null if it does not say."""


def _credential(rule: CacheRule) -> ShownCredential | None:
    if rule.username is None:
        return None
    return ShownCredential(username=rule.username, has_secret=True)


_BODIES: Final = Bodies(
    CACHE_RULE,
    (
        Composite(
            name="uri",
            words="What images are pulled by: host, account handle and prefix, without the image's"
            " name.",
            shown=str,
            after="prefix",
        ),
        Composite(
            name="credential",
            shown=ShownCredential,
            given=GivenCredential,
            show=_credential,
            after="upstream_prefix",
        ),
        Composite(name="stats", shown=CacheStats, after="enabled"),
        Composite(
            name="paused_until",
            words="When the upstream is asked again; null if it is asked now.",
            shown=RFC3339 | None,
        ),
        Composite(
            name="faults",
            words="Of the last day, the latest first; one for each code.",
            shown=Sequence[FaultRecord],
        ),
    ),
    update_doc="The fields to change; null gives an optional one its default. A rule's prefix is"
    " fixed.",
    update_words={"upstream_url": "With another upstream, give the credential again, or null."},
    suffix="Answer",
)
if TYPE_CHECKING:
    CreatePullThroughCacheRule = RequestBody
    UpdatePullThroughCacheRule = RequestBody
else:
    CreatePullThroughCacheRule = _BODIES.create
    UpdatePullThroughCacheRule = _BODIES.update


def _answer(ctx: RequestContext, shown: ShownRule) -> ResponseBody:
    found, condition = shown
    return _BODIES.shown(
        found.rule,
        uri=uri_of(ctx, found.handle, found.rule.prefix),
        stats=answer_of(
            CacheStats,
            found.totals,
            cached_images=found.image_count,
            cached_bytes=found.cached_bytes,
            budget_left=condition.budget_left,
        ),
        paused_until=None if condition.paused_until is None else rfc3339(condition.paused_until),
        faults=[_fault(each) for each in condition.faults],
    )


def _fault(of: UpstreamFault) -> FaultRecord:
    fault = Fault(of.code, of.message, of.first_at, of.last_at, of.occurrences)
    return fault_record(fault, severity(of), details(of))


_RULE: Final = RecordAnswers(_BODIES.record, CACHE_RULE.one, _answer, noun="cache rule")


def _checked_fields(
    ctx: RequestContext, rule_id: str, given: Mapping[str, Any], allowed: Allowed
) -> dict[str, Any]:
    """Check the rule fields in a request; return them, with the credential's secret sealed."""
    fields = dict(given)
    if "upstream_url" in fields:
        fields["upstream_url"] = upstream_origin(fields["upstream_url"], allowed)
    rules.check_upstream_prefix(fields.get("upstream_prefix", ""))
    if "credential" in fields:
        credential = fields.pop("credential")
        fields |= {"username": None, "secret_sealed": None}
        if credential is not None:
            rules.check_credential(credential.username, credential.secret)
            sealed = seal_secret(ctx.keyring, rule_id, credential.secret)
            fields |= {"username": credential.username, "secret_sealed": sealed}
    return fields


def _audit_details(shown: ShownRule) -> dict[str, object]:
    """Return the audit details of a changed rule, besides its id."""
    rule = shown.details.rule
    return {
        "prefix": rule.prefix,
        "upstream_url": rule.upstream_url,
        "has_credential": rule.username is not None,
    }


@_RULE.creates(_PATH, "registry:CreatePullThroughCacheRule", statuses=(409,))
async def create_pull_through_cache_rule(
    data: JSONBody[CreatePullThroughCacheRule], ctx: Context, needs: Needs[ServiceContext]
) -> Reply[ResponseBody]:
    """Cache the images of an upstream registry under a prefix; the upstream is not asked now."""
    account_id = account_of(ctx)
    account = await ctx.database.read(find_account, account_id)
    assert account is not None
    given = changes_of(data)
    rules.check_prefix(account.handle, given["prefix"])
    ctx.authorize(CACHE_RULE.crn(ctx.settings.region, account_id, given["prefix"]))
    now, rule_id = ctx.clock(), ctx.new_id()
    rule = CacheRule(
        **_checked_fields(ctx, rule_id, given, needs.upstream_allowed),
        id=rule_id,
        account_id=account_id,
        region=ctx.settings.region,
        created_at=now,
        updated_at=now,
    )
    return await ctx.commit(
        rules.create_rule,
        rule,
        wrap=partial(_RULE.one, ctx),
        location=lambda made: f"{_PATH}/{made.details.rule.id}",
        details=_audit_details,
    )


@_RULE.lists(_PATH, "registry:DescribePullThroughCacheRules")
async def list_pull_through_cache_rules(ctx: Context) -> ResponseBody:
    """List the account's pull-through cache rules, by prefix."""
    account_id = account_of(ctx)
    ctx.authorize(CACHE_RULE.crn(ctx.settings.region, account_id, "*"))
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        partial(rules.list_shown_rules, now=ctx.clock()),
        lambda tx, of: CACHE_RULES.count(tx, of, ctx.settings.region, ()),
        account_id,
        key=lambda each: each.details.rule.prefix,
    )
    return _RULE.many([_answer(ctx, each) for each in found], meta)


@_RULE.gets(_ONE, "registry:DescribePullThroughCacheRules")
async def get_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return a pull-through cache rule."""
    return _RULE.one(ctx, await _authorized(ctx, pull_through_cache_rule_id))


@_RULE.updates(_ONE, "registry:UpdatePullThroughCacheRule")
async def update_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str],
    data: JSONBody[UpdatePullThroughCacheRule],
    ctx: Context,
    needs: Needs[ServiceContext],
) -> Reply[ResponseBody]:
    """Change a pull-through cache rule; what is cached stays."""
    rule = (await _authorized(ctx, pull_through_cache_rule_id)).details.rule
    given = changes_of(data, CreatePullThroughCacheRule)
    changes = _checked_fields(ctx, rule.id, given, needs.upstream_allowed)
    return await ctx.commit(
        rules.update_rule,
        rule.account_id,
        rule.id,
        changes,
        ctx.clock(),
        wrap=partial(_RULE.one, ctx),
        details=_audit_details,
    )


@deletes(_ONE, "registry:DeletePullThroughCacheRule")
async def delete_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str], ctx: Context
) -> None:
    """Delete a pull-through cache rule; the repositories that it has filled stay."""
    rule = (await _authorized(ctx, pull_through_cache_rule_id)).details.rule
    await ctx.database.write(rules.delete_rule, rule, ctx.clock())


@post(f"{_ONE}/test", status_code=200, opt={"action": "registry:TestPullThroughCacheRule"})
async def try_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str],
    ctx: Context,
    needs: Needs[ServiceContext],
    data: JSONBody[TestPullThroughCacheRule | None] = None,
) -> UpstreamTest:
    """Ask a rule's upstream whether it answers, or for an image; nothing is pulled or cached."""
    found = (await _authorized(ctx, pull_through_cache_rule_id)).details
    wanted = _wanted(found, data)
    return await ask_upstream(
        needs.upstream, partial(credential_of, ctx.keyring), found.rule, wanted, ctx.clock
    )


def _wanted(found: RuleDetails, data: TestPullThroughCacheRule | None) -> ImageToTest | None:
    if data is None or data.repository is None:
        return None
    if not is_tag(data.tag):
        raise InvalidInput("tag: this is no tag", field="tag", reason="malformed")
    try:
        parse_name(f"{found.handle}/{data.repository}")
    except NameInvalid:
        words = "repository: the name of an image at the upstream, such as library/alpine"
        raise InvalidInput(words, field="repository", reason="malformed") from None
    return ImageToTest(Name(found.handle, f"{found.rule.prefix}/{data.repository}"), data.tag)


async def _authorized(ctx: RequestContext, rule_id: str) -> ShownRule:
    """Return a rule of the caller's account; raise `AccessDenied` if policies refuse."""
    account_id = account_of(ctx)
    found = await ctx.database.read(rules.get_rule, account_id, rule_id, ctx.clock())
    ctx.authorize(CACHE_RULE.crn_of(found.details.rule))
    return found
