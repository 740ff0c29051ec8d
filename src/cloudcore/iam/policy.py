"""Parse policy documents strictly, because an ignored part might be a deny; cache the results.

Tenants decide how many policies there are and how much memory each takes: a parsed list of networks
takes sixty times the memory of its text. So the cache is bounded by bytes, not by the number of
entries.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cloudcore.iam.conditions import NO_CONDITIONS, Conditions, parse_conditions
from cloudcore.iam.grammar import StringForm, as_list, as_object, as_text, nearest, refusal
from cloudcore.iam.patterns import Patterns
from cloudcore.resource_names import UUID_PATTERN


class ResourceRules(NamedTuple):
    """The rules for policies of one kind of resource."""

    noun: str
    """The kind of resource, with its article, for messages: ``a bucket``."""
    actions: frozenset[str]
    """The actions that policies of these resources may name."""
    public_actions: frozenset[str] = frozenset()
    """Those of `actions` that a policy may allow to everyone, signed in or not."""


MAX_BYTES: Final = 20 * 1024
MAX_PRINCIPAL_BYTES: Final = 40 * 1024
"""Maximum total bytes of the documents attached to a service account or role; each of its requests
is evaluated against all of them."""
MAX_STATEMENTS: Final = 50

EVERYONE: Final = "*"
"""The principal that matches everyone, signed in or not."""
SERVICE: Final = "crn:iam:::service/"
"""Prefix of the CRNs of the platform's services, which belong to no account."""
TRUST_ACTION: Final = "iam:AssumeRole"

_ACCOUNT: Final = rf"(?:{UUID_PATTERN}|(?=[a-z0-9-]{{2,32}}(?:\Z|:))[a-z0-9]+(?:-[a-z0-9]+)*)"
_ACTION: Final = StringForm(
    re.compile(r"\*|[a-z]+:(?:[A-Za-z]{1,64}\*?|\*)"),
    "actions such as iam:GetRole, iam:List*, iam:* or *",
)
_RESOURCE: Final = StringForm(
    re.compile(r"\*|crn:[!-~]{1,2044}"), "CRNs, in which * and ? match, or *"
)
_SID: Final = StringForm(
    re.compile(r"[A-Za-z0-9 _.-]{1,128}"), "1 to 128 letters, digits, spaces, '_', '.' and '-'"
)
_PRINCIPAL: Final = StringForm(
    re.compile(
        rf"\*|{_ACCOUNT}|crn:iam::(?:{UUID_PATTERN}:(?:user|identity-provider)/{UUID_PATTERN}"
        rf"|{_ACCOUNT}:(?:role|service-account)/[a-z0-9][a-z0-9._-]{{0,62}})"
        rf"|{SERVICE}[a-z]{{1,32}}"
    ),
    "accounts (their ids or handles), CRNs of users, roles, service accounts or services, or *",
)


PRINCIPAL_DOCS: Final = {
    "<account>": "all service accounts and roles of an account, by its id or handle",
    "crn:iam::<account>:role/<name>": "a role",
    "crn:iam::<account>:service-account/<name>": "a service account",
    "crn:iam::<organization>:user/<id>": "a person; in trust policies, since people act by roles",
    f"{SERVICE}<service>": "a service of the platform, as `compute`; in trust policies",
    EVERYONE: "everyone, signed in or not; not in trust policies",
}
"""The forms of principals in the policies of resources and in trust policies."""


class Effect(Enum):
    """The effect of a statement."""

    ALLOW = "allow"
    DENY = "deny"


class PolicyKind(Enum):
    """The kind of a policy document, which determines its fields.

    For resource policies, `ResourceRules` take the place of a member of this enum.
    """

    IDENTITY = "identity"
    TRUST = "trust"


class PolicyStatement(NamedTuple):
    """A statement of a policy."""

    effect: Effect
    actions: Patterns
    principals: frozenset[str] = frozenset()
    """Account ids, CRNs, or ``*``; empty in identity policies."""
    resources: Patterns = Patterns(())
    """Patterns of CRNs; empty in resource policies, where the resource is implied."""
    conditions: Conditions = NO_CONDITIONS


class ActionStatements(NamedTuple):
    """The allow and deny statements of a policy that can match one action."""

    denies: tuple[PolicyStatement, ...]
    allows: tuple[PolicyStatement, ...]


@dataclass(frozen=True)
class Policy:
    """A parsed policy document; its statements are indexed by action on demand."""

    statements: tuple[PolicyStatement, ...]
    _by_action: dict[str, ActionStatements] = field(default_factory=dict, compare=False, repr=False)

    def about(self, action: str) -> ActionStatements:
        """Return the statements that match `action`.

        Pass only actions that routes declare, since each result stays in memory.
        """
        about = self._by_action.get(action)
        if about is None:
            spoken = [each for each in self.statements if each.actions.match(action)]
            about = self._by_action[action] = ActionStatements(
                tuple(each for each in spoken if each.effect is Effect.DENY),
                tuple(each for each in spoken if each.effect is Effect.ALLOW),
            )
        return about


def check_size(document: bytes) -> None:
    """Raise `InvalidInput` if a document has more than `MAX_BYTES`."""
    if len(document) > MAX_BYTES:
        raise refusal("document", "out_of_range", f"a policy has at most {MAX_BYTES} bytes")


def policy_of(document: Any, kind: PolicyKind | ResourceRules) -> Policy:  # noqa: ANN401 - JSON, not yet checked
    """Parse a policy document, already decoded from JSON.

    Raise `InvalidInput` if it is not a policy of this kind; ``field`` is a path such as
    ``statements[2].actions``, and ``reason`` a code.
    """
    top = as_object(document, "", {"version", "statements"})
    if top.get("version") != "1":
        raise refusal("version", _reason(top, "version"), 'must be "1"')
    statements = top.get("statements")
    if not isinstance(statements, list) or not 1 <= len(statements) <= MAX_STATEMENTS:
        reason = "out_of_range" if isinstance(statements, list) else _reason(top, "statements")
        raise refusal("statements", reason, f"a list of 1 to {MAX_STATEMENTS} statements")
    return Policy(
        tuple(
            _statement(statement, f"statements[{index}]", kind)
            for index, statement in enumerate(statements)
        )
    )


def _reason(parts: dict[str, Any], name: str) -> str:
    """Return the reason code for a field that is missing or has a value that is not allowed."""
    return "not_allowed" if name in parts else "missing"


_COMMON: Final = {"sid", "effect", "actions", "conditions"}


def _statement(value: Any, where: str, kind: PolicyKind | ResourceRules) -> PolicyStatement:  # noqa: ANN401
    named = "resources" if kind is PolicyKind.IDENTITY else "principals"
    parts = as_object(value, where, _COMMON | {named})
    if "sid" in parts:
        as_text(parts["sid"], f"{where}.sid", _SID)
    effect = parts.get("effect")
    if effect not in ("allow", "deny"):
        raise refusal(f"{where}.effect", _reason(parts, "effect"), '"allow" or "deny"')
    implied = [TRUST_ACTION] if kind is PolicyKind.TRUST else None
    actions = as_list(parts.get("actions", implied), f"{where}.actions", _ACTION)
    conditions = NO_CONDITIONS
    if "conditions" in parts:
        conditions = parse_conditions(parts["conditions"], f"{where}.conditions")
    if kind is PolicyKind.IDENTITY:
        resources = as_list(parts.get("resources"), f"{where}.resources", _RESOURCE)
        return PolicyStatement(
            Effect(effect),
            Patterns(actions),
            resources=Patterns(resources),
            conditions=conditions,
        )
    principals = frozenset(as_list(parts.get("principals"), f"{where}.principals", _PRINCIPAL))
    _check_attached_actions(actions, principals, Effect(effect), where, kind)
    return PolicyStatement(
        Effect(effect), Patterns(actions), principals=principals, conditions=conditions
    )


def _check_attached_actions(
    actions: tuple[str, ...],
    principals: frozenset[str],
    effect: Effect,
    where: str,
    kind: PolicyKind | ResourceRules,
) -> None:
    """Raise `InvalidInput` if actions or principals are not allowed in this kind of policy."""
    is_for_all = EVERYONE in principals and effect is Effect.ALLOW
    if not isinstance(kind, ResourceRules):
        words = f"a trust policy may name only the action {TRUST_ACTION}"
        _check_among(actions, frozenset({TRUST_ACTION}), words, where)
        if is_for_all:
            raise refusal(f"{where}.principals", "not_allowed", "a role cannot trust everyone")
        return
    if any(":identity-provider/" in each or each.startswith(SERVICE) for each in principals):
        words = "only a role's trust policy may name an identity provider or a service"
        raise refusal(f"{where}.principals", "not_allowed", words)
    words = f"{kind.noun}'s policy may name only {_listed(kind.actions)}"
    _check_among(actions, kind.actions, words, where)
    if is_for_all:
        words = f"the public may be allowed {_listed(kind.public_actions)} only"
        _check_among(actions, kind.public_actions, words, where)


def _check_among(actions: tuple[str, ...], allowed: frozenset[str], words: str, where: str) -> None:
    for action in actions:
        if action not in allowed:
            raise refusal(
                f"{where}.actions",
                "not_allowed",
                f"{words}, not {action}",
                value=action,
                suggestions=nearest(action, allowed),
            )


def _listed(actions: frozenset[str]) -> str:
    return ", ".join(sorted(actions)) or "nothing"


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

CAPACITY_BYTES: Final = 64 * 1024 * 1024
"""Default capacity of a cache: some ten thousand typical policies."""

_POLICY_BYTES: Final = 2000
_STATEMENT_BYTES: Final = 1500
"""Memory of a statement, with its entry in the index by action."""
_STRING_BYTES: Final = 300
"""Memory of an action, parsed pattern or principal, without its characters."""
_CHARACTER_BYTES: Final = 2
_PIECE_BYTES: Final = 64
_NETWORK_BYTES: Final = 500


def memory_of(policy: Policy) -> int:
    """Return the maximum memory in bytes of a policy once its index by action is complete."""
    return _POLICY_BYTES + sum(map(_memory_of, policy.statements))


def _memory_of(statement: PolicyStatement) -> int:
    texts = (*statement.actions.texts, *statement.resources.texts, *statement.principals)
    conditions = statement.conditions
    return (
        _STATEMENT_BYTES
        + sum(
            _STRING_BYTES + _CHARACTER_BYTES * len(text) + _PIECE_BYTES * text.count("*")
            for text in texts
        )
        + _NETWORK_BYTES * (len(conditions.ip_address) + len(conditions.not_ip_address))
    )


class WeighedCache(Generic[K, V]):
    """A thread-safe LRU cache with a capacity in bytes."""

    def __init__(self, capacity: int = CAPACITY_BYTES) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()
        self.weight = 0
        """Sum of the weights of all entries, in bytes."""

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if the cache has none."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, weight: int) -> None:
        """Insert or replace a value of `weight` bytes; evict the least recently used if full."""
        with self._lock:
            _, replaced = self._kept.pop(key, (value, 0))
            self._kept[key] = (value, weight)
            self.weight += weight - replaced
            while self.weight > self._capacity:
                _, (_, evicted) = self._kept.popitem(last=False)
                self.weight -= evicted
