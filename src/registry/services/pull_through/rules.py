"""Create, read, change and delete the rules of the pull-through cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import structs

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.outbound.destinations import Allowed, NotAllowed, check_url
from registry.errors import NameInvalid
from registry.metadata.pull_through import lookups, upstream_states
from registry.metadata.pull_through import rules as rows
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.rules import MAX_COMPONENTS, RuleDetails
from registry.metadata.pull_through.tables import CACHE_RULES
from registry.oci.reference import MAX_NAME_LENGTH, parse_name
from registry.services.pull_through.upstream_states import UpstreamCondition, conditions

_ASKED_BY: Final = ("upstream_url", "upstream_prefix", "username", "secret_sealed")
"""Fields of a rule that select the upstream, its repositories and the credential."""
_DOCKER_HUB: Final = "https://registry-1.docker.io"
_OTHER_NAMES: Final = {
    "https://docker.io": _DOCKER_HUB,
    "https://index.docker.io": _DOCKER_HUB,
    "https://hub.docker.com": _DOCKER_HUB,
    "https://registry.hub.docker.com": _DOCKER_HUB,
}
"""Maps origins at which no registry answers to the origin of their registry."""


class ShownRule(NamedTuple):
    """A rule with its upstream's state, as ``/v1`` shows it."""

    details: RuleDetails
    condition: UpstreamCondition
    """The condition of the rule's upstream."""


def check_prefix(handle: str, prefix: str) -> None:
    """Raise `InvalidInput` unless `prefix` is one to three name components, not too long."""
    try:
        parse_name(f"{handle}/{prefix}/a")
    except NameInvalid:
        pass
    else:
        if prefix.count("/") < MAX_COMPONENTS:
            return
    raise InvalidInput(
        f"a prefix is one to {MAX_COMPONENTS} parts of a repository's name, such as docker-hub or"
        f" mirrors/quay; with {handle}/ before it, names have at most {MAX_NAME_LENGTH} characters",
        field="prefix",
        reason="malformed",
    )


def check_upstream_prefix(prefix: str) -> None:
    """Raise `InvalidInput` unless a prefix of upstream names is empty or a valid name."""
    if not prefix:
        return
    try:
        parse_name(f"aa/{prefix}/a")
    except NameInvalid:
        raise InvalidInput(
            "upstream_prefix: the beginning of names at the upstream, such as bitnami or"
            " project/team, without a slash at its ends",
            field="upstream_prefix",
            reason="malformed",
        ) from None


def upstream_origin(url: str, allowed: Allowed) -> str:
    """Return the origin of an upstream's URL, if this server may ask it.

    No request is made: the host's addresses are checked at each connection. Raise `InvalidInput` if
    the URL is not an origin, or this server may not ask it.
    """
    try:
        found = check_url(url, allowed)
    except NotAllowed as error:
        raise InvalidInput(
            f"upstream_url: {error}", field="upstream_url", reason="not_allowed"
        ) from None
    if found.target not in ("", "/"):
        raise InvalidInput(
            "upstream_url: write it as https://HOST; what comes after it belongs into"
            " upstream_prefix",
            field="upstream_url",
            reason="malformed",
        )
    return _OTHER_NAMES.get(found.origin, found.origin)


def check_credential(username: str, secret: str) -> None:
    """Raise `InvalidInput` unless user name and secret can be sent to an upstream (RFC 7617 §2)."""
    for name, text in (("username", username), ("secret", secret)):
        if not text.isprintable() or (name == "username" and ":" in text):
            raise InvalidInput(
                f"credential.{name}: it has a control character, or is a user name with a colon",
                field=f"credential.{name}",
                reason="malformed",
            )


def create_rule(tx: Connection, rule: CacheRule) -> ShownRule:
    """Insert a rule, and return it.

    Repositories that an earlier rule cached under this prefix become the new rule's. Raise
    `Conflict` if the prefix overlaps with another rule's, or a pushed repository is under the
    prefix; `QuotaExceeded` if the account has the maximum number of rules.
    """
    rows.lock_account(tx, rule.account_id)
    prefixes = rows.prefixes_of(tx, rule.account_id)
    for other in prefixes:
        if f"{other}/".startswith(f"{rule.prefix}/") or f"{rule.prefix}/".startswith(f"{other}/"):
            raise Conflict(f"the rule of {other} has these names", prefix=other)
    words = "an account has at most {limit} pull-through cache rules"
    use = CACHE_RULES.counted.check(tx, rule.account_id, words, region=rule.region)
    repository = rows.pushed_repository_under(tx, rule.account_id, rule.prefix)
    if repository is not None:
        raise Conflict(
            f"the repository {repository} is under {rule.prefix}/; the names of a rule are its own",
            repository=repository,
        )
    CACHE_RULES.add(tx, rule)
    CACHE_RULES.counted.emit_level(tx, rule.account_id, use, rule.created_at)
    return get_rule(tx, rule.account_id, rule.id, rule.created_at)


def get_rule(tx: Connection, account_id: str, rule_id: str, now: int) -> ShownRule:
    """Return a rule of an account; raise `NotFound` if there is none."""
    found = rows.find_rule(tx, account_id, rule_id)
    if found is None:
        raise CACHE_RULES.missing()
    return ShownRule(found, conditions(tx, [rule_id], now)[rule_id])


def list_shown_rules(
    tx: Connection, account_id: str, after: str, limit: int, *, now: int
) -> list[ShownRule]:
    """Return up to `limit` rules of an account after the prefix `after`, sorted by prefix."""
    found = rows.list_rules(tx, account_id, after, limit)
    of_rule = conditions(tx, [each.rule.id for each in found], now)
    return [ShownRule(each, of_rule[each.rule.id]) for each in found]


def update_rule(
    tx: Connection, account_id: str, rule_id: str, changes: Mapping[str, Any], now: int
) -> ShownRule:
    """Change the columns in `changes` of a rule, and return the rule.

    If the upstream or its credential changes, the stored limits, failures, absences and tag lists
    are deleted, as they belong to another upstream or credential. Absences are also deleted if they
    are now to be recorded for a shorter time.

    Raise `NotFound` if there is no such rule; `InvalidInput` if the upstream changes without a new
    credential: otherwise a caller who may change a rule could have its secret sent to their own
    server.
    """
    rule = rows.lock_to_change(tx, account_id, rule_id)
    if rule is None:
        raise CACHE_RULES.missing()
    changed = structs.replace(rule, **changes)
    is_other = changed.upstream_url != rule.upstream_url
    if is_other and rule.username is not None and "username" not in changes:
        raise InvalidInput(
            "credential: the upstream changes, so give its credential again, or null",
            field="credential",
            reason="required",
        )
    if changed != rule:
        CACHE_RULES.save(tx, structs.replace(changed, updated_at=now))
    if any(getattr(changed, name) != getattr(rule, name) for name in _ASKED_BY):
        upstream_states.forget_state(tx, rule_id)
        lookups.forget_absences(tx, rule_id)
        lookups.remove_lists(tx, rule_id)
    elif changed.negative_ttl_seconds < rule.negative_ttl_seconds:
        lookups.forget_absences(tx, rule_id)
    return get_rule(tx, account_id, rule_id, now)


def delete_rule(tx: Connection, rule: CacheRule, now: int) -> None:
    """Delete a rule, or raise `NotFound`; its cached images stay, and can still be pulled."""
    CACHE_RULES.remove(tx, CACHE_RULES.lock(tx, rule.account_id, rule.id), now)
