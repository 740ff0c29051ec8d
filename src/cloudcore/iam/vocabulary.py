"""The names that policies may use: kinds of resources of all families, their actions and CRNs.

An identity policy may name only actions and resources that exist: a typing error in a deny would
leave the action allowed, and a typing error in an allow would have no effect. Documents are checked
only when they are stored; they stay in force even if a kind of resource is removed later.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from cloudcore.errors import InvalidInput
from cloudcore.iam.grammar import nearest
from cloudcore.iam.patterns import Patterns
from cloudcore.iam.policy import Policy, PolicyKind, ResourceRules
from cloudcore.iam.templates import PolicyTemplate
from cloudcore.resource_names import parse_uuid

if TYPE_CHECKING:
    from cloudcore.db.base import Connection
    from cloudcore.resource_names import Crn

_PARTS: Final = 5
"""Parts of a CRN, split at its first four colons."""
_MOST_NAMED: Final = 12
"""Maximum number of actions listed in an error."""
_VARYING: Final = re.compile(r"[a-z0-9*?-]+")


class StoredPolicy(NamedTuple):
    """The policy of a resource in its stored form; see `cloudcore.identity.rights.documents`."""

    document: str
    encoded_ids: str


class OwnPolicy(NamedTuple):
    """How to find and check the resource policies of one kind of resource."""

    find: Callable[[Connection, Crn], StoredPolicy | None]
    """Returns the policy of the resource with a CRN, or None. The CRN has the account's id."""
    rules: PolicyKind | ResourceRules
    actions: frozenset[str]
    """The actions that the policy decides on."""
    read_action: str
    """The action that a caller needs to read the policy."""
    is_required: bool = False
    """True if even callers of the resource's account need an allow in this policy, not only one in
    their own policies."""


@cache
def _parts(crn: str) -> tuple[str, ...]:
    """Return (service, region, account, type) of a CRN template."""
    *before, last = crn.split(":", _PARTS - 1)[1:]
    return (*before, last.partition("/")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind of resource that policies can name."""

    crn: str
    """Form of the kind's CRNs; variable parts are in angle brackets."""
    actions: tuple[str, ...]
    """The kind's actions, as ``family:VerbNoun``."""
    rules: ResourceRules | None = None
    """Rules for resource policies of this kind; None if such resources cannot have one."""
    summaries: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Sentences for those actions that the summaries of their operations do not explain."""
    own_policy: OwnPolicy | None = None
    """How simulations read resource policies; None if resources of this kind have none."""

    @property
    def family(self) -> str:
        """Return the name of the family, which is the service in the kind's CRNs."""
        return _parts(self.crn)[0]

    @property
    def type(self) -> str:
        """Return the type in the kind's CRNs."""
        return _parts(self.crn)[-1]

    def fits(self, service: str, region: str, account: str, name: str) -> bool:
        """Return True if a CRN pattern with these parts can match a CRN of this kind.

        `name` is the last part of the pattern, with the type: ``role/*``.
        """
        own_service, own_region, own_account, own_type = _parts(self.crn)
        if not (_fits(service, own_service) and _fits(region, own_region)):
            return False
        kind, slash, own_name = name.partition("/")
        if slash:
            return bool(own_name) and _fits(kind, own_type) and _fits(account, own_account)
        literal = kind.partition("*")[0].partition("?")[0]
        has_type = "*" in kind and f"{own_type}/".startswith(literal)
        return has_type and _fits(account, own_account)


def standard_actions(service: str, one: str, many: str = "") -> tuple[str, ...]:
    """Return the actions of a noun's standard methods: ``iam:CreateRole``, ``iam:ListRoles``.

    `one` and `many` are the singular and the plural; by default, the plural ends in s.
    """
    named = [f"{verb}{one}" for verb in ("Create", "Delete", "Get", "Update")]
    return tuple(f"{service}:{each}" for each in (*named, f"List{many or f'{one}s'}"))


class ActionOperation(NamedTuple):
    """An operation that requires an action."""

    operation: str
    """The method and the path of the operation."""
    summary: str


class Vocabulary:
    """The actions and kinds of resources of an installation, and its policy templates.

    `recorded` are further actions that the audit log may contain.
    """

    def __init__(
        self,
        kinds: Sequence[ResourceKind] = (),
        templates: Sequence[PolicyTemplate] = (),
        recorded: Sequence[str] = (),
    ) -> None:
        self.kinds: Final = tuple(kinds)
        self.templates: Final = tuple(templates)
        self._recorded: Final = recorded
        self.shared_actions: Final = frozenset[str]().union(
            *(kind.rules.actions for kind in kinds if kind.rules is not None)
        )
        """The actions that resource policies may name."""
        self.operations: Mapping[str, Sequence[ActionOperation]] = {}
        """Maps each action to the operations that require it; see `describe`."""
        self._described: object = None

    def describe(self, operations: Iterable[tuple[str, ActionOperation]]) -> None:
        """Store (action, operation that requires it) pairs; call this once."""
        if operations is self._described:
            return  # a forked worker shares what its parent has set
        self._described = operations
        found: dict[str, list[ActionOperation]] = {}
        for action, operation in operations:
            found.setdefault(action, []).append(operation)
        self.operations = {
            action: sorted(each, key=lambda operation: operation.operation.split()[::-1])
            for action, each in found.items()
        }

    def summary_of(self, kind: ResourceKind, action: str) -> str:
        """Return the action's summary, or that of its first operation; empty if there is none."""
        if action in kind.summaries:
            return kind.summaries[action]
        operations = self.operations.get(action)
        return operations[0].summary if operations else ""

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """Return all actions, sorted."""
        return tuple(sorted({action for kind in self.kinds for action in kind.actions}))

    @cached_property
    def recorded_actions(self) -> tuple[str, ...]:
        """Return all actions that the audit log may contain, sorted."""
        return tuple(sorted({*self.actions, *self._recorded}))

    def kind_of(self, crn: Crn, field: str) -> ResourceKind:
        """Return the kind of the resource that a CRN names.

        Raise `InvalidInput` if there is no such kind; the error names `field`.
        """
        parts = (crn.service, crn.region, crn.account, f"{crn.type}/{crn.name}")
        for kind in self.kinds:
            if kind.fits(*parts):
                return kind
        raise _unknown(field, "resource", str(crn), self._near_forms(str(crn)))

    def check_action(self, action: str, field: str) -> None:
        """Check that `action` is an existing action, not a pattern.

        Raise `InvalidInput` if it is not, with ``field``, ``value``, ``reason`` (``action_pattern``
        or ``unknown_action``), and as ``suggestions`` the actions that the pattern matches, or the
        most similar ones.
        """
        if action in self.actions:
            return
        pattern = Patterns((action,))
        matched = [each for each in self.actions if pattern.match(each)] if "*" in action else []
        if not matched:
            raise _unknown(field, "action", action, nearest(action, self.actions))
        named = matched[:_MOST_NAMED]
        others = len(matched) - len(named)
        more = f" and {others} more; GET /v1/actions lists all" if others else ""
        raise InvalidInput(
            f"{field}: ask about whole actions, not about the pattern {action}, which matches"
            f" {', '.join(named)}{more}",
            field=field,
            reason="action_pattern",
            value=action,
            suggestions=named,
        )

    def check_recorded(self, pattern: str, field: str) -> None:
        """Check that an action, or a prefix followed by ``*``, can be in the audit log.

        Raise `InvalidInput` if it cannot, with ``field``, ``value``, the ``reason``
        ``unknown_action``, and the most similar actions as ``suggestions``.
        """
        if not _is_among(pattern, self.recorded_actions):
            raise _unknown(field, "action", pattern, nearest(pattern, self.recorded_actions))

    def check(self, policy: Policy) -> None:
        """Check that each action and resource in an identity policy can match an existing one.

        Raise `InvalidInput` if one cannot, with ``field``, ``value``, ``reason``
        (``unknown_action`` or ``unknown_resource``) and ``suggestions``.
        """
        for index, statement in enumerate(policy.statements):
            for text in statement.actions.texts:
                if not _is_among(text, self.actions):
                    raise _unknown(
                        f"statements[{index}].actions", "action", text, nearest(text, self.actions)
                    )
            for text in statement.resources.texts:
                if not self._is_resource(text):
                    raise _unknown(
                        f"statements[{index}].resources", "resource", text, self._near_forms(text)
                    )

    def _is_resource(self, pattern: str) -> bool:
        """Return True if a CRN pattern can match a resource of an existing kind.

        A ``*`` may stand for several parts. Then only the service is checked, and the type if it is
        given without a ``*``.
        """
        parts = pattern.split(":", _PARTS - 1)
        if len(parts) == _PARTS:
            return any(kind.fits(*parts[1:]) for kind in self.kinds)
        if "*" not in pattern:
            return False
        if len(parts) == 1:
            return True
        service = parts[1] if len(parts) > 2 else parts[1].partition("*")[0] + "*"
        kind, slash, _ = parts[-1].partition("/")
        is_open = not slash or "*" in kind
        return any(
            _fits(service, each.family) and (is_open or _fits(kind, each.type))
            for each in self.kinds
        )

    def _near_forms(self, pattern: str) -> list[str]:
        """Return the CRN templates whose service and type are most similar to a pattern's."""
        parts = pattern.split(":", _PARTS - 1)
        service, kind = parts[1] if len(parts) > 1 else "", parts[-1].partition("/")[0]
        forms = {f"{each.family}:{each.type}": each.crn for each in self.kinds}
        return [forms[each] for each in nearest(f"{service}:{kind}", forms)]


def _is_among(pattern: str, actions: Sequence[str]) -> bool:
    """Return True if `pattern`, an action or a prefix and ``*``, matches one of the actions."""
    prefix = pattern.removesuffix("*")
    at = bisect_left(actions, prefix)
    if at == len(actions):
        return False
    return actions[at] == prefix or (prefix != pattern and actions[at].startswith(prefix))


def _fits(pattern: str, part: str) -> bool:
    if part.startswith("<"):  # a region or an account
        return _VARYING.fullmatch(pattern) is not None or parse_uuid(pattern) is not None
    if "*" in pattern or "?" in pattern:
        return Patterns((pattern,)).match(part)
    return pattern == part


def _unknown(where: str, noun: str, value: str, suggestions: list[str]) -> InvalidInput:
    hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else "."
    return InvalidInput(
        f"{where}: there is no {noun} {value}{hint}",
        field=where,
        reason=f"unknown_{noun}",
        value=value,
        suggestions=suggestions,
    )
