"""Check, parse and compile the rules of a lifecycle policy, and store the policy.

    priority                    unique; the lowest number comes first
    action                      ``expire`` or ``keep``
    selector                    ``untagged``, ``tagged`` or ``any``
    tag_prefixes, tag_patterns  with ``tagged``: one tag must match one of them
    older_than_days | not_pulled_for_days | keep_last

An *expire* rule has exactly one of the three conditions; one for ``untagged`` may have none, and
then expires every image it selects. A rule claims the images it selects: later rules do not see
them, even if its condition does not hold. So the expire rule for ``any`` must be the last.

A *keep* rule protects the images it selects from every expire rule, regardless of priorities; with
``keep_last``, only the newest of them. Keep rules do not affect one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, field

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound
from cloudcore.iam.patterns import Patterns
from cloudcore.web.revisions import require_revision
from cloudcore.wire import RequestBody
from registry.metadata import lifecycle_policies as lifecycle
from registry.metadata.lifecycle_policies import StoredLifecyclePolicy
from registry.services.repositories.names import lock_existing_repository

DAY: Final = 24 * 3600 * MICROSECONDS
MAX_BYTES: Final = 20 * 1024
MAX_PATTERN_BYTES: Final = 8 * 1024
"""The maximum total size of all `tag_patterns` with a ``*``. Each tag is matched with all of them,
also in the transaction that selects images again; the worst case is 0.1 ms for each tag."""
MAX_RULES: Final = 50

Selector = Literal["untagged", "tagged", "any"]
_TagPart = Annotated[str, Meta(min_length=1, max_length=128)]
_TagParts = Annotated[list[_TagPart], Meta(max_length=100)]
_Days = Annotated[int, Meta(ge=1, le=36_500)]

_TAG_PARTS: Final = (
    ("tag_prefixes", re.compile(r"[A-Za-z0-9_.-]+"), "letters, digits, '_', '.' and '-'"),
    ("tag_patterns", re.compile(r"[A-Za-z0-9_.*-]+"), "letters, digits, '_', '.', '-' and '*'"),
)
_CONDITIONS: Final = ("older_than_days", "not_pulled_for_days", "keep_last")
RUN_EVERY: Final = DAY


class LifecycleRule(RequestBody):
    """A rule as its owner writes it."""

    priority: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """Unique; the rule with the lowest number is applied first."""
    selector: Selector
    """`untagged` without a condition expires every untagged image that nothing protects."""
    description: Annotated[str, Meta(max_length=256)] | None = None
    action: Literal["expire", "keep"] = "expire"
    """`keep` protects the selected images from every expire rule."""
    tag_prefixes: _TagParts = field(default_factory=list)
    """Only with `tagged`: selects images with a tag that starts with one of these."""
    tag_patterns: _TagParts = field(default_factory=list)
    """As `tag_prefixes`, with a tag that matches one of these; `*` stands for any characters."""
    older_than_days: _Days | None = None
    """Days since its push, its restoration, its last new tag or the loss of its last tag: whichever
    is the latest."""
    not_pulled_for_days: _Days | None = None
    """Days since its last pull, or since the moment of `older_than_days` if that is later."""
    keep_last: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """This many images stay: those that were pushed last."""


Rules = Annotated[list[LifecycleRule], Meta(min_length=1, max_length=MAX_RULES)]


class CompiledRule(NamedTuple):
    """A compiled rule; durations are in microseconds."""

    priority: int
    is_keep: bool
    selector: Selector
    prefixes: tuple[str, ...]
    patterns: Patterns
    older_than: int | None
    not_pulled_for: int | None
    keep_last: int | None

    def takes_tag(self, tag: str) -> bool:
        """Return True if this tag makes the rule select an image."""
        if self.selector != "tagged":
            return False
        if not self.prefixes and not self.patterns.texts:
            return True
        return tag.startswith(self.prefixes) or self.patterns.match(tag)


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """Compiled rules, by priority.

    A set of rules is an integer, in which bit ``n`` stands for ``rules[n]``.
    """

    rules: tuple[CompiledRule, ...]
    keeping: int
    """The set of keep rules; the others expire images."""
    of_untagged: int
    """The set of rules that select images without a tag."""
    of_any: int
    """The set of rules that select every image."""

    def of_tag(self, tag: str) -> int:
        """Return the set of rules that select an image with this tag."""
        found = self.of_any
        for number, rule in enumerate(self.rules):
            if rule.takes_tag(tag):
                found |= 1 << number
        return found


def check_rules(rules: Sequence[LifecycleRule]) -> str:
    """Check rules and return the document to store.

    Raise `InvalidInput`, with ``field`` (such as ``rules[2].priority``) and ``reason``, if one is
    not allowed.
    """
    seen: set[int] = set()
    for number, rule in enumerate(rules):
        where = f"rules[{number}]"
        if rule.priority in seen:
            raise _refusal(f"{where}.priority", "duplicate", "another rule has this priority")
        seen.add(rule.priority)
        _check_tag_parts(rule, where)
        _check_condition(rule, where)
    _check_any_is_last(rules)
    patterns = (pattern for rule in rules for pattern in rule.tag_patterns if "*" in pattern)
    if sum(map(len, patterns)) > MAX_PATTERN_BYTES:
        words = f"the tag_patterns with * have at most {MAX_PATTERN_BYTES} bytes together"
        raise _refusal("rules", "out_of_range", words)
    document = msgspec.json.encode({"rules": rules})
    if len(document) > MAX_BYTES:
        raise _refusal("rules", "out_of_range", f"a policy has at most {MAX_BYTES} bytes")
    return document.decode()


def parse_rules(document: str) -> list[LifecycleRule]:
    """Return the rules of a stored document."""
    return msgspec.json.decode(document, type=dict[str, list[LifecycleRule]])["rules"]


def policy_of(document: str) -> CompiledPolicy:
    """Return the compiled policy of a stored document."""
    by_priority = sorted(parse_rules(document), key=lambda each: each.priority)
    rules = tuple(_compiled(each) for each in by_priority)
    return CompiledPolicy(
        rules,
        keeping=_bits(rule.is_keep for rule in rules),
        of_untagged=_bits(rule.selector != "tagged" for rule in rules),
        of_any=_bits(rule.selector == "any" for rule in rules),
    )


def _compiled(rule: LifecycleRule) -> CompiledRule:
    return CompiledRule(
        rule.priority,
        rule.action == "keep",
        rule.selector,
        tuple(rule.tag_prefixes),
        Patterns(tuple(rule.tag_patterns)),
        None if rule.older_than_days is None else rule.older_than_days * DAY,
        None if rule.not_pulled_for_days is None else rule.not_pulled_for_days * DAY,
        rule.keep_last,
    )


def _bits(marks: Iterable[bool]) -> int:
    return sum(1 << number for number, mark in enumerate(marks) if mark)


def _check_tag_parts(rule: LifecycleRule, where: str) -> None:
    for name, grammar, characters in _TAG_PARTS:
        parts: list[str] = getattr(rule, name)
        if parts and rule.selector != "tagged":
            words = f"the selector {rule.selector} does not look at tags"
            raise _refusal(f"{where}.{name}", "not_allowed", words)
        for number, part in enumerate(parts):
            if not grammar.fullmatch(part):
                words = f"it has only {characters}, as tags do"
                raise _refusal(f"{where}.{name}[{number}]", "malformed", words)


def _check_condition(rule: LifecycleRule, where: str) -> None:
    given = [name for name in _CONDITIONS if getattr(rule, name) is not None]
    if rule.action == "keep":
        refused = [name for name in given if name != "keep_last"]
        words = "a keep rule has no condition, or keep_last"
    else:
        if not given and rule.selector != "untagged":
            words = f"an expire rule for {rule.selector} has one of {', '.join(_CONDITIONS)}"
            raise _refusal(where, "missing", words)
        refused = given[1:]
        words = "an expire rule has one condition"
    if refused:
        raise _refusal(f"{where}.{refused[0]}", "not_allowed", words)


def _check_any_is_last(rules: Sequence[LifecycleRule]) -> None:
    last = max((rule.priority for rule in rules if rule.action == "expire"), default=0)
    for number, rule in enumerate(rules):
        if rule.action == "expire" and rule.selector == "any" and rule.priority < last:
            words = "expire rules after the one for any would select nothing; make it the last"
            raise _refusal(f"rules[{number}].selector", "not_last", words)


def _refusal(where: str, reason: str, words: str) -> InvalidInput:
    return InvalidInput(f"{where}: {words}", field=where, reason=reason)


def put_policy(
    tx: Connection,
    repository_id: str,
    rules: Sequence[LifecycleRule],
    now: int,
    revision: int | None = None,
) -> StoredLifecyclePolicy:
    """Insert or replace a repository's policy.

    The first run starts a day later, so that there is time for a preview. Replacing a policy keeps
    its schedule, and stops a run of the old one.

    Raises:
        InvalidInput: with ``field`` and ``reason``.
        Conflict: `revision` is not None, and the policy has another revision.
        NotFound: there is no such repository.

    """
    document = check_rules(rules)
    lock_existing_repository(tx, repository_id)
    if revision is not None:
        stored = lifecycle.find_lifecycle_policy(tx, repository_id)
        require_revision(stored.revision if stored else 0, revision)
    return lifecycle.store_lifecycle_policy(tx, repository_id, document, now, now + RUN_EVERY)


def get_policy(tx: Connection, repository_id: str) -> StoredLifecyclePolicy:
    """Return a repository's policy; raise `NotFound` if it has none."""
    stored = lifecycle.find_lifecycle_policy(tx, repository_id)
    if stored is None:
        raise no_policy()
    return stored


def delete_policy(tx: Connection, repository_id: str) -> None:
    """Delete a repository's policy, or raise `NotFound`; a current run of the policy stops."""
    lock_existing_repository(tx, repository_id)
    if not lifecycle.remove_lifecycle_policy(tx, repository_id):
        raise no_policy()


def no_policy() -> NotFound:
    """Return the error for a repository without a policy."""
    return NotFound("the repository has no lifecycle policy")
