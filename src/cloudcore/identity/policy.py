"""Policy documents: parsed strictly, since what is ignored might have been a refusal (C4).

One grammar for three kinds: *identity* policies (attached to a service account or role; they
name resources), *resource* policies (attached to a repository; they name principals) and *trust*
policies (who may assume a role).
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any, Final, NamedTuple

from cloudcore.errors import InvalidInput

MAX_BYTES: Final = 20 * 1024
MAX_STATEMENTS: Final = 50
MAX_ENTRIES: Final = 100
"""How many principals, actions, resources or addresses one list may have."""

RESOURCE_ACTIONS: Final = frozenset(
    {"registry:PullImage", "registry:DescribeImages", "registry:PushImage"}
)
PUBLIC_ACTIONS: Final = frozenset({"registry:PullImage"})
TRUST_ACTION: Final = "iam:AssumeRole"

_ACTION: Final = re.compile(r"\*|[a-z]+:(?:[A-Za-z]+\*?|\*)")
_RESOURCE: Final = re.compile(r"[!-~]{1,2048}")
_SID: Final = re.compile(r"[A-Za-z0-9 _.-]{1,128}")
_PRINCIPAL: Final = re.compile(r"[!-~]{1,600}")


class Effect(Enum):
    """What a statement does with what it covers."""

    ALLOW = "allow"
    DENY = "deny"


class Kind(Enum):
    """What a document is attached to, which decides the parts it has."""

    IDENTITY = "identity"
    RESOURCE = "resource"
    TRUST = "trust"


class Pattern(NamedTuple):
    """Text in which ``*`` stands for any run of characters and ``?`` for one."""

    text: str

    def matches(self, value: str) -> bool:
        """Say whether the whole of `value` fits; in time linear in either, for fixed other."""
        pattern = self.text
        at = index = 0
        star = retry = -1
        while index < len(value):
            if at < len(pattern) and pattern[at] == "*":
                star, retry = at, index
                at += 1
            elif at < len(pattern) and pattern[at] in ("?", value[index]):
                at += 1
                index += 1
            elif star >= 0:
                retry += 1
                at, index = star + 1, retry
            else:
                return False
        return all(character == "*" for character in pattern[at:])


class Conditions(NamedTuple):
    """When a statement applies; all parts that are given must hold."""

    ip_address: tuple[IPv4Network | IPv6Network, ...] = ()
    not_ip_address: tuple[IPv4Network | IPv6Network, ...] = ()
    date_before: int | None = None
    """Microseconds since the epoch."""
    date_after: int | None = None

    def hold(self, source_ip: IPv4Address | IPv6Address | None, now: int) -> bool:
        """Say whether they hold; an address that is not known is in no network."""
        if self.ip_address and not _inside(source_ip, self.ip_address):
            return False
        if self.not_ip_address and _inside(source_ip, self.not_ip_address):
            return False
        if self.date_before is not None and now >= self.date_before:
            return False
        return self.date_after is None or now > self.date_after


class Statement(NamedTuple):
    """One sentence of a policy."""

    effect: Effect
    actions: tuple[Pattern, ...]
    principals: frozenset[str] = frozenset()
    """Account ids, CRNs, or ``*``; empty in identity policies."""
    resources: tuple[Pattern, ...] = ()
    """Patterns of CRNs; empty where the resource is implied."""
    conditions: Conditions = Conditions()


class Policy(NamedTuple):
    """A parsed document."""

    statements: tuple[Statement, ...]


def parse_policy(document: bytes | str, kind: Kind) -> Policy:
    """Return a document in the form that is evaluated.

    Raises:
        InvalidInput: with ``field``, a path such as ``statements[2].actions``, and ``reason``.

    """
    if len(document) > MAX_BYTES:
        raise _refusal("document", f"a policy has at most {MAX_BYTES} bytes")
    try:
        parsed = json.loads(document, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _refusal("document", "not JSON, or an object names a key twice") from None
    return policy_of(parsed, kind)


def policy_of(document: Any, kind: Kind) -> Policy:  # noqa: ANN401 - JSON, not yet checked
    """Return parsed JSON as a policy; see `parse_policy`."""
    top = _object(document, "document", {"version", "statements"})
    if top.get("version") != "1":
        raise _refusal("version", 'must be "1"')
    statements = top.get("statements")
    if not isinstance(statements, list) or not 1 <= len(statements) <= MAX_STATEMENTS:
        raise _refusal("statements", f"a list of 1 to {MAX_STATEMENTS} statements")
    return Policy(
        tuple(
            _statement(statement, f"statements[{index}]", kind)
            for index, statement in enumerate(statements)
        )
    )


_PARTS: Final = {
    Kind.IDENTITY: {"sid", "effect", "actions", "resources", "conditions"},
    Kind.RESOURCE: {"sid", "effect", "principals", "actions", "conditions"},
    Kind.TRUST: {"sid", "effect", "principals", "actions", "conditions"},
}


def _statement(value: Any, where: str, kind: Kind) -> Statement:  # noqa: ANN401
    parts = _object(value, where, _PARTS[kind])
    if "sid" in parts:
        _text(parts["sid"], f"{where}.sid", _SID)
    effect = parts.get("effect")
    if effect not in ("allow", "deny"):
        raise _refusal(f"{where}.effect", '"allow" or "deny"')
    if kind is Kind.TRUST and "actions" not in parts:
        parts["actions"] = [TRUST_ACTION]
    actions = _list(parts.get("actions"), f"{where}.actions", _ACTION)
    principals: frozenset[str] = frozenset()
    resources: tuple[Pattern, ...] = ()
    if kind is Kind.IDENTITY:
        resources = tuple(
            map(Pattern, _list(parts.get("resources"), f"{where}.resources", _RESOURCE))
        )
    else:
        principals = frozenset(_list(parts.get("principals"), f"{where}.principals", _PRINCIPAL))
        _check_attached_actions(actions, principals, Effect(effect), where, kind)
    return Statement(
        Effect(effect),
        tuple(map(Pattern, actions)),
        principals,
        resources,
        _conditions(parts.get("conditions"), f"{where}.conditions"),
    )


def _check_attached_actions(
    actions: list[str], principals: frozenset[str], effect: Effect, where: str, kind: Kind
) -> None:
    """Refuse what a resource or trust policy may not speak of."""
    if kind is Kind.TRUST:
        if set(actions) != {TRUST_ACTION}:
            raise _refusal(f"{where}.actions", f"a trust policy speaks of {TRUST_ACTION} only")
        if "*" in principals and effect is Effect.ALLOW:
            raise _refusal(f"{where}.principals", "a role cannot trust everyone")
        return
    if not RESOURCE_ACTIONS.issuperset(actions):
        allowed = ", ".join(sorted(RESOURCE_ACTIONS))
        raise _refusal(f"{where}.actions", f"a repository's policy speaks of {allowed} only")
    if "*" in principals and effect is Effect.ALLOW and not PUBLIC_ACTIONS.issuperset(actions):
        raise _refusal(f"{where}.actions", "the public may be allowed registry:PullImage only")


def _conditions(value: Any, where: str) -> Conditions:  # noqa: ANN401
    if value is None:
        return Conditions()
    parts = _object(value, where, set(Conditions._fields))
    return Conditions(
        ip_address=_networks(parts, "ip_address", where),
        not_ip_address=_networks(parts, "not_ip_address", where),
        date_before=_moment(parts, "date_before", where),
        date_after=_moment(parts, "date_after", where),
    )


def _networks(
    parts: dict[str, Any], name: str, where: str
) -> tuple[IPv4Network | IPv6Network, ...]:
    if name not in parts:
        return ()
    texts = _list(parts[name], f"{where}.{name}", _PRINCIPAL)
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError:
        raise _refusal(f"{where}.{name}", "addresses or networks such as 10.0.0.0/8") from None


def _moment(parts: dict[str, Any], name: str, where: str) -> int | None:
    if name not in parts:
        return None
    text = parts[name]
    reason = "a date-time with its offset (RFC 3339)"
    try:
        moment = datetime.fromisoformat(text)
        microseconds = int(moment.timestamp() * 1_000_000)
    except (TypeError, ValueError, OverflowError):
        raise _refusal(f"{where}.{name}", reason) from None
    if moment.tzinfo is None:
        raise _refusal(f"{where}.{name}", reason)
    return microseconds


def _inside(
    address: IPv4Address | IPv6Address | None,
    networks: tuple[IPv4Network | IPv6Network, ...],
) -> bool:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address is not None and any(address in network for network in networks)


def _object(value: Any, where: str, keys: set[str]) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise _refusal(where, "an object")
    unknown = value.keys() - keys
    if unknown:
        raise _refusal(f"{where}.{min(unknown)[:64]}", "no such field here")
    return dict(value)


def _list(value: Any, where: str, grammar: re.Pattern[str]) -> list[str]:  # noqa: ANN401
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ENTRIES:
        raise _refusal(where, f"a list of 1 to {MAX_ENTRIES} strings")
    return [_text(item, where, grammar) for item in value]


def _text(value: Any, where: str, grammar: re.Pattern[str]) -> str:  # noqa: ANN401
    if not isinstance(value, str) or not grammar.fullmatch(value):
        raise _refusal(where, "not of the form this field has")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(constant: str) -> None:
    raise ValueError(constant)


def _refusal(field: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{field}: {reason}", field=field, reason=reason)
