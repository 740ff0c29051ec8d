"""``/v1/pull-through-cache-rules``: which names are filled from which upstream registries."""

from __future__ import annotations

from functools import partial
from typing import Final

from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from cloudcore.errors import InvalidInput
from cloudcore.identity.rows.accounts import find_account
from cloudcore.jobs.faults import Fault
from cloudcore.resource_names import Crn
from cloudcore.web.app import Needs
from cloudcore.web.bodies import FaultRecord, fault_record
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import changes_of, rfc3339
from registry.control.answers import answer_of
from registry.control.pull_through_cache_shapes import (
    CacheStats,
    CreatePullThroughCacheRule,
    GivenCredential,
    ManyPullThroughCacheRules,
    OnePullThroughCacheRule,
    PullThroughCacheRuleAnswer,
    ShownCredential,
    TestPullThroughCacheRule,
    UpdatePullThroughCacheRule,
    UpstreamTest,
)
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

_PATH: Final = "/v1/pull-through-cache-rules"
_ONE: Final = f"{_PATH}/{{pull_through_cache_rule_id:str}}"
_KIND: Final = "pull-through-cache-rule"


def _crn(ctx: RequestContext, account_id: str, prefix: str) -> str:
    return str(Crn("registry", ctx.settings.region, account_id, _KIND, prefix))


def _answer(ctx: RequestContext, shown: ShownRule) -> PullThroughCacheRuleAnswer:
    found, condition = shown
    rule, totals = found.rule, found.totals
    credential = None
    if rule.username is not None:
        credential = ShownCredential(username=rule.username, has_secret=True)
    return answer_of(
        PullThroughCacheRuleAnswer,
        rule,
        crn=_crn(ctx, rule.account_id, rule.prefix),
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


def _one(ctx: RequestContext, shown: ShownRule) -> OnePullThroughCacheRule:
    return OnePullThroughCacheRule(pull_through_cache_rule=_answer(ctx, shown))


def _sealed(
    ctx: RequestContext, rule_id: str, given: GivenCredential | None
) -> tuple[str | None, bytes | None]:
    """Return the user name and the sealed secret of a credential."""
    if given is None:
        return None, None
    rules.check_credential(given.username, given.secret)
    return given.username, seal_secret(ctx.keyring, rule_id, given.secret)


def _told(shown: ShownRule) -> dict[str, object]:
    """Return what the audit log keeps of a change besides its rule."""
    rule = shown.details.rule
    return {
        "prefix": rule.prefix,
        "upstream_url": rule.upstream_url,
        "has_credential": rule.username is not None,
    }


@post(
    _PATH,
    status_code=201,
    opt={
        "action": "registry:CreatePullThroughCacheRule",
        "idempotent": True,
        "statuses": (409,),
    },
)
async def create_pull_through_cache_rule(
    data: JSONBody[CreatePullThroughCacheRule],
    ctx: NamedDependency[RequestContext],
    needs: Needs[ServiceContext],
) -> Reply[OnePullThroughCacheRule]:
    """Cache the images of an upstream registry under a prefix; the upstream is not asked now."""
    account_id = account_of(ctx)
    account = await ctx.database.read(find_account, account_id)
    assert account is not None
    rules.check_prefix(account.handle, data.prefix)
    ctx.authorize(_crn(ctx, account_id, data.prefix))
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
        wrap=partial(_one, ctx),
        location=lambda made: f"{_PATH}/{made.details.rule.id}",
        told=_told,
    )


@get(_PATH, opt={"action": "registry:DescribePullThroughCacheRules", "query": PageQuery})
async def list_pull_through_cache_rules(
    ctx: NamedDependency[RequestContext],
) -> ManyPullThroughCacheRules:
    """List the account's pull-through cache rules, by prefix."""
    account_id = account_of(ctx)
    ctx.authorize(_crn(ctx, account_id, "*"))
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        partial(rules.list_shown_rules, now=ctx.clock()),
        count_rules,
        account_id,
        key=lambda each: each.details.rule.prefix,
    )
    return ManyPullThroughCacheRules(
        pull_through_cache_rules=[_answer(ctx, each) for each in found], meta=meta
    )


@get(_ONE, opt={"action": "registry:DescribePullThroughCacheRules"})
async def get_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OnePullThroughCacheRule:
    """Return a pull-through cache rule."""
    return _one(ctx, await _authorized(ctx, pull_through_cache_rule_id))


@patch(_ONE, opt={"action": "registry:UpdatePullThroughCacheRule"})
async def update_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str],
    data: JSONBody[UpdatePullThroughCacheRule],
    ctx: NamedDependency[RequestContext],
    needs: Needs[ServiceContext],
) -> Reply[OnePullThroughCacheRule]:
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
        wrap=partial(_one, ctx),
        told=_told,
    )


@delete(_ONE, opt={"action": "registry:DeletePullThroughCacheRule"})
async def delete_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> None:
    """Delete a pull-through cache rule; the repositories that it has filled stay."""
    rule = (await _authorized(ctx, pull_through_cache_rule_id)).details.rule
    await ctx.database.write(rules.delete_rule, rule.account_id, rule.id)


@post(
    f"{_ONE}/test",
    status_code=200,
    opt={"action": "registry:TestPullThroughCacheRule"},
)
async def try_pull_through_cache_rule(
    pull_through_cache_rule_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
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
    ctx.authorize(_crn(ctx, account_id, found.details.rule.prefix))
    return found
