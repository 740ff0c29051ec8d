"""Find the caller's allowed actions on resources, for clients that offer only these.

The decisions are the evaluator's own (`cloudcore.iam.decision`), and include the policies of the
resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied
from cloudcore.iam.decision import REQUEST_STEPS, Caller, Question, Verdict, decide
from cloudcore.iam.patterns import Patterns, StepBudget
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Principal
from cloudcore.iam.vocabulary import OwnPolicy
from cloudcore.identity.rights.documents import means_principal, read_stored
from cloudcore.resource_names import Crn

ANY_NAME: Final = "*"
"""Stands for all names of resources of a kind."""

_UNCOMMON: Final = "7d1f0c52e9b8"
"""A name that no policy is likely to have."""
_MOST_NAMES: Final = 200
_CRN_PARTS: Final = 5


class RightsQuestion(NamedTuple):
    """Asks which of these actions are allowed on a resource."""

    resource: Crn
    """The CRN, with the account's id."""
    actions: Sequence[str]
    own_policy: OwnPolicy | None
    """How the policies of resources of this kind are read; None if these have no policies."""


class ResourcePolicy(NamedTuple):
    """A resource's own policy, and the ids of the names in it."""

    policy: Policy
    encoded_ids: str


class Rights(NamedTuple):
    """The actions that are allowed on a resource."""

    actions: list[str]
    on_some: list[str]
    """If the name is `ANY_NAME`, the actions that are allowed on at least one name; else the same
    as `actions`."""


@dataclass(frozen=True, slots=True)
class RightsRequest:
    """A caller with its policies, and the client address and time of its request."""

    caller: Principal
    policies: Sequence[Policy]
    source_ip: IPv4Address | IPv6Address | None
    now: int
    """Microseconds since the epoch."""
    work: StepBudget = field(default_factory=lambda: StepBudget(REQUEST_STEPS))
    """The step budget of all decisions for the request."""


def load_own_policies(
    tx: Connection, questions: Sequence[RightsQuestion]
) -> list[ResourcePolicy | None]:
    """Return the resource policy for each question.

    It is None if the resource has no policy, the policy does not decide on the question's actions,
    or the name is `ANY_NAME`.
    """
    return [_load(tx, each) for each in questions]


def _load(tx: Connection, question: RightsQuestion) -> ResourcePolicy | None:
    own = question.own_policy
    if own is None or own.actions.isdisjoint(question.actions):
        return None
    found = None if question.resource.name == ANY_NAME else own.find(tx, question.resource)
    if found is None:
        return None
    policy = read_stored(found.document, found.encoded_ids, own.rules)
    return ResourcePolicy(policy, found.encoded_ids)


def rights_of(
    request: RightsRequest, question: RightsQuestion, attached: ResourcePolicy | None
) -> Rights:
    """Return the caller's allowed actions on the question's resource.

    `attached` is the resource's policy from `load_own_policies`. Raise `AccessDenied` if the
    policies need more steps than the request's budget has.
    """
    actions = [
        action
        for action in question.actions
        if _is_allowed(request, question, action, question.resource.name, attached)
    ]
    if question.resource.name != ANY_NAME:
        return Rights(actions, actions)
    on_some = [
        action
        for action in question.actions
        if action in actions
        or any(
            _is_allowed(request, question, action, name, None)
            for name in _names(request.policies, action, question.resource.type)
        )
    ]
    return Rights(actions, on_some)


def allowed_prefixes(request: RightsRequest, action: str, every: Crn) -> list[str]:
    """Return the name prefixes in the caller's policies for which `action` is always allowed.

    So the action is allowed on all resources whose names begin with such a prefix. `every` has the
    kind and the account of the resources; its name is ignored. Names without a ``*`` at the end are
    not prefixes.
    """
    found = []
    for name in dict.fromkeys(_spelled_out(request.policies, action, every.type)):
        prefix = name.removesuffix("*")
        if not prefix or prefix == name or {"*", "?"} & set(prefix):
            continue
        question = RightsQuestion(every, (action,), None)
        if _is_allowed(request, question, action, name, None):
            found.append(prefix)
    return sorted(found)


def _is_allowed(
    request: RightsRequest,
    question: RightsQuestion,
    action: str,
    name: str,
    attached: ResourcePolicy | None,
) -> bool:
    resource, own = question.resource, question.own_policy
    concerns = own is not None and action in own.actions
    crn = request.caller.crn
    if attached is not None and not means_principal(attached.encoded_ids, crn, request.caller.id):
        crn = ""  # the name meant another principal when the policy was written
    verdict = decide(
        Question(
            caller=Caller(crn, request.caller.account_id),
            action=action,
            resource=str(resource._replace(name=name)),
            # No account has the empty id: then the resource's policy must allow too.
            resource_account_id="" if concerns and own and own.is_required else resource.account,
            source_ip=request.source_ip,
            now=request.now,
            work=request.work,
        ),
        request.policies,
        attached.policy if attached is not None and concerns else None,
    )
    if verdict is Verdict.TOO_COSTLY:
        words = f"{verdict.value}, or ask about fewer resources at once"
        raise AccessDenied(words, reason="too_costly")
    return verdict.is_allowed


def _names(policies: Sequence[Policy], action: str, kind: str) -> Iterator[str]:
    """Yield names of resources of a kind on which policies may allow `action`.

    Each is an example of the names that a pattern matches; another policy may still deny it.
    """
    yield _UNCOMMON
    for name in _spelled_out(policies, action, kind):
        yield name.replace("*", _UNCOMMON).replace("?", _UNCOMMON[0])


def _spelled_out(policies: Sequence[Policy], action: str, kind: str) -> Iterator[str]:
    """Yield the name patterns for resources of a kind in statements that allow `action`."""
    patterns = dict.fromkeys(
        text
        for policy in policies
        for statement in policy.about(action).allows
        for text in statement.resources.texts
    )
    for text in list(patterns)[:_MOST_NAMES]:
        parts = text.split(":", _CRN_PARTS - 1)
        last = parts[-1] if len(parts) == _CRN_PARTS else text.rpartition(":")[2]
        type_pattern, _, name = last.partition("/")
        if name and Patterns((type_pattern,)).match(kind):
            yield name
