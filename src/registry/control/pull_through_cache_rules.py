"""``/v1/pull-through-cache-rules``: rules that fill names from upstream registries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from litestar import post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.errors import InvalidInput
from cloudcore.identity.rows.accounts import find_account
from cloudcore.jobs.faults import Fault
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import FaultRecord, fault_record
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of, rfc3339
from registry.control.repositories import uri_of
from registry.errors import NameInvalid
from registry.metadata.pull_through.rules import CacheRule, RuleDetails, count_rules
from registry.metadata.pull_through.upstream_states import UpstreamFault
from registry.oci.reference import Name, is_tag, parse_name
from registry.services.context import ServiceContext
from registry.services.pull_through import rules
from registry.services.pull_through.remote import Wanted, ask_upstream, credential_of, seal_secret
from registry.services.pull_through.rules import ShownRule, upstream_origin
from registry.services.pull_through.upstream_states import details, severity
from registry.services.resource_kinds import cache_rule_crn

_PATH: Final = "/v1/pull-through-cache-rules"
_ONE: Final = f"{_PATH}/{{pull_through_cache_rule_id:str}}"

UpstreamUrl = Annotated[str, Meta(min_length=8, max_length=1000)]
UpstreamPrefix = Annotated[str, Meta(max_length=200)]
TagTtl = Annotated[int, Meta(ge=60, le=604800)]
NegativeTtl = Annotated[int, Meta(ge=0, le=86400)]
KeepDays = Annotated[int, Meta(ge=1, le=3650)]
MaxBytes = Annotated[int, Meta(ge=1, le=2**60)]


class GivenCredential(RequestBody):
    """What an upstream is asked with."""

    username: Annotated[str, Meta(min_length=1, max_length=255)]
    secret: Annotated[str, Meta(min_length=1, max_length=4096)]
    """A password or an access token; it is never shown again."""


class CreatePullThroughCacheRule(RequestBody):
    """A new rule of the pull-through cache."""

    prefix: Annotated[str, Meta(min_length=1, max_length=200)]
    """One to three parts: ``docker-hub`` caches ``library/alpine`` as
    ``docker-hub/library/alpine``. No repository and no other rule may have names under it."""
    upstream_url: UpstreamUrl
    """The upstream's origin, such as ``https://quay.io``; ``https://docker.io`` is Docker Hub."""
    upstream_prefix: UpstreamPrefix = ""
    """The beginning of the names at the upstream that are left out in the cached names."""
    credential: GivenCredential | None = None
    tag_ttl_seconds: TagTtl = 3600
    """For how long a tag is served without asking the upstream where it points."""
    negative_ttl_seconds: NegativeTtl = 60
    """For how long it is remembered that the upstream does not have something."""
    keep_unpulled_days: KeepDays | None = None
    """Cached images that were not pulled for so many days go; null: they stay."""
    max_bytes: MaxBytes | None = None
    """Limit of all that is cached: above it, the images that were pulled longest ago are deleted;
    null for no limit."""
    enabled: bool = True
    """If false, what is cached is served, and nothing is fetched."""


class UpdatePullThroughCacheRule(RequestBody):
    """The fields to change; a rule's prefix is fixed."""

    upstream_url: UpstreamUrl | UnsetType = UNSET
    """With another upstream, give the credential again, or null."""
    upstream_prefix: UpstreamPrefix | UnsetType | None = UNSET
    credential: GivenCredential | UnsetType | None = UNSET
    tag_ttl_seconds: TagTtl | UnsetType | None = UNSET
    negative_ttl_seconds: NegativeTtl | UnsetType | None = UNSET
    keep_unpulled_days: KeepDays | UnsetType | None = UNSET
    max_bytes: MaxBytes | UnsetType | None = UNSET
    enabled: bool | UnsetType | None = UNSET


class TestPullThroughCacheRule(RequestBody):
    """What to ask the upstream for; by default only whether it answers."""

    repository: Annotated[str, Meta(min_length=1, max_length=210)] | None = None
    """As it is pulled, without the rule's prefix: ``library/alpine``."""
    tag: Annotated[str, Meta(min_length=1, max_length=128)] = "latest"


class ShownCredential(ResponseBody):
    """What an upstream is asked with; the secret is never shown."""

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
    """Bytes of blobs that clients got and that were not fetched for them."""
    cached_images: int
    cached_bytes: int
    """Distinct blobs of each cached repository, added up."""
    budget_left: int | None
    """Pulls that the upstream still allows, as it last said; null if it does not say."""


class PullThroughCacheRuleAnswer(ResponseBody):
    """A rule of the pull-through cache."""

    id: Uuid
    crn: str
    prefix: str
    uri: str
    """What images are pulled by: host, account handle and prefix, without the image's name."""
    upstream_url: str
    upstream_prefix: str
    credential: ShownCredential | None
    tag_ttl_seconds: int
    negative_ttl_seconds: int
    keep_unpulled_days: int | None
    max_bytes: int | None
    enabled: bool
    stats: CacheStats
    last_success_at: RFC3339 | None
    paused_until: RFC3339 | None
    """When the upstream is asked again; null if it is asked now."""
    faults: Sequence[FaultRecord]
    """Of the last day, the latest first; one for each code."""
    created_at: RFC3339
    updated_at: RFC3339


class UpstreamTest(ResponseBody):
    """How a test of a rule's upstream ended; a failure is an answer, not an error."""

    ok: bool
    stage: Literal["dns", "tls", "auth", "manifest"]
    """How far it came: the name's address, the connection, the token, or the answer."""
    http_status: int | None
    """The status that the upstream answered, or null if it did not."""
    latency_ms: int
    message: str


def _answer(ctx: RequestContext, shown: ShownRule) -> PullThroughCacheRuleAnswer:
    found, condition = shown
    rule, totals = found.rule, found.totals
    credential = None
    if rule.username is not None:
        credential = ShownCredential(username=rule.username, has_secret=True)
    return answer_of(
        PullThroughCacheRuleAnswer,
        rule,
        crn=cache_rule_crn(ctx.settings.region, rule.account_id, rule.prefix),
        uri=uri_of(ctx, found.handle, rule.prefix),
        credential=credential,
        stats=answer_of(
            CacheStats,
            totals,
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


_RULE: Final = RecordAnswers(
    PullThroughCacheRuleAnswer, "pull_through_cache_rule", _answer, noun="cache rule"
)


def _sealed(
    ctx: RequestContext, rule_id: str, given: GivenCredential | None
) -> tuple[str | None, bytes | None]:
    """Return the user name and the sealed secret of a credential."""
    if given is None:
        return None, None
    rules.check_credential(given.username, given.secret)
    return given.username, seal_secret(ctx.keyring, rule_id, given.secret)


def _audit_details(shown: ShownRule) -> dict[str, object]:
    """Return what the audit log keeps of a change besides its rule."""
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
    rules.check_prefix(account.handle, data.prefix)
    ctx.authorize(cache_rule_crn(ctx.settings.region, account_id, data.prefix))
    rules.check_upstream_prefix(data.upstream_prefix)
    now, rule_id = ctx.clock(), ctx.new_id()
    username, secret_sealed = _sealed(ctx, rule_id, data.credential)
    given = changes_of(data)
    del given["credential"]
    given["upstream_url"] = upstream_origin(data.upstream_url, needs.upstream_allowed)
    rule = CacheRule(
        **given,
        id=rule_id,
        account_id=account_id,
        username=username,
        secret_sealed=secret_sealed,
        last_success_at=None,
        created_at=now,
        updated_at=now,
    )
    return await ctx.commit(
        rules.create_rule,
        rule,
        wrap=partial(_RULE.one, ctx),
        location=lambda made: f"{_PATH}/{made.details.rule.id}",
        told=_audit_details,
    )


@_RULE.lists(_PATH, "registry:DescribePullThroughCacheRules")
async def list_pull_through_cache_rules(ctx: Context) -> ResponseBody:
    """List the account's pull-through cache rules, by prefix."""
    account_id = account_of(ctx)
    ctx.authorize(cache_rule_crn(ctx.settings.region, account_id, "*"))
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        partial(rules.list_shown_rules, now=ctx.clock()),
        count_rules,
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
    changes = changes_of(data, CreatePullThroughCacheRule)
    if "upstream_url" in changes:
        changes["upstream_url"] = upstream_origin(changes["upstream_url"], needs.upstream_allowed)
    rules.check_upstream_prefix(changes.get("upstream_prefix", ""))
    if "credential" in changes:
        username, secret_sealed = _sealed(ctx, rule.id, changes.pop("credential"))
        changes |= {"username": username, "secret_sealed": secret_sealed}
    return await ctx.commit(
        rules.update_rule,
        rule.account_id,
        rule.id,
        changes,
        ctx.clock(),
        wrap=partial(_RULE.one, ctx),
        told=_audit_details,
    )


@deletes(_ONE, "registry:DeletePullThroughCacheRule")
async def delete_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str], ctx: Context
) -> None:
    """Delete a pull-through cache rule; the repositories that it has filled stay."""
    rule = (await _authorized(ctx, pull_through_cache_rule_id)).details.rule
    await ctx.database.write(rules.delete_rule, rule.account_id, rule.id)


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
    probed = await ask_upstream(
        needs.upstream, partial(credential_of, ctx.keyring), found.rule, wanted, ctx.clock
    )
    return UpstreamTest(**probed._asdict())


def _wanted(found: RuleDetails, data: TestPullThroughCacheRule | None) -> Wanted | None:
    if data is None or data.repository is None:
        return None
    if not is_tag(data.tag):
        raise InvalidInput("tag: this is no tag", field="tag", reason="malformed")
    try:
        parse_name(f"{found.handle}/{data.repository}")
    except NameInvalid:
        words = "repository: the name of an image at the upstream, such as library/alpine"
        raise InvalidInput(words, field="repository", reason="malformed") from None
    return Wanted(Name(found.handle, f"{found.rule.prefix}/{data.repository}"), data.tag)


async def _authorized(ctx: RequestContext, rule_id: str) -> ShownRule:
    """Return a rule of the caller's account; raise `AccessDenied` unless policies allow it."""
    account_id = account_of(ctx)
    found = await ctx.database.read(rules.get_rule, account_id, rule_id, ctx.clock())
    ctx.authorize(cache_rule_crn(ctx.settings.region, account_id, found.details.rule.prefix))
    return found
