"""``/v1/actions``: what policies can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import get
from litestar.di import NamedDependency

from cloudcore.iam.conditions import CONDITION_DOCS
from cloudcore.iam.policy import PRINCIPAL_DOCS
from cloudcore.iam.vocabulary import ResourceKind, Vocabulary
from cloudcore.web.context import RequestContext
from cloudcore.wire import ResponseBody


class ActionRecord(ResponseBody):
    """An action."""

    name: str
    family: str
    resource: str
    """Form of the CRNs of its resources; variable parts are in angle brackets."""
    summary: str
    operations: Sequence[str]
    """Methods and paths of the operations on `/v1` that take it."""


class ResourceKindRecord(ResponseBody):
    """A kind of resource."""

    family: str
    kind: str
    crn: str
    """Form of its CRNs; variable parts are in angle brackets."""
    policy_actions: Sequence[str]
    """The actions that a resource's own policy may name; none if it has no policy."""
    public_actions: Sequence[str]
    """Those of them that may be allowed to everyone."""


class ConditionRecord(ResponseBody):
    """A condition of a statement."""

    name: str
    summary: str


class PrincipalRecord(ResponseBody):
    """A form of principals, in policies of resources and in trust policies."""

    form: str
    summary: str


class ManyActions(ResponseBody):
    """All that policies can name."""

    actions: Sequence[ActionRecord]
    resources: Sequence[ResourceKindRecord]
    conditions: Sequence[ConditionRecord]
    principals: Sequence[PrincipalRecord]


def list_vocabulary(vocabulary: Vocabulary) -> ManyActions:
    """Return all that policies can name, in order."""
    actions = [
        ActionRecord(
            name=action,
            family=kind.family,
            resource=kind.crn,
            summary=vocabulary.summary_of(kind, action),
            operations=[each.operation for each in vocabulary.operations.get(action, ())],
        )
        for kind in vocabulary.kinds
        for action in kind.actions
    ]
    return ManyActions(
        actions=sorted(actions, key=lambda each: each.name),
        resources=[*map(_kind, sorted(vocabulary.kinds, key=lambda kind: kind.crn))],
        conditions=[ConditionRecord(name=name, summary=s) for name, s in CONDITION_DOCS.items()],
        principals=[PrincipalRecord(form=form, summary=s) for form, s in PRINCIPAL_DOCS.items()],
    )


def _kind(kind: ResourceKind) -> ResourceKindRecord:
    own = () if kind.own_policy is None else kind.own_policy.actions
    public = () if kind.rules is None else kind.rules.public_actions
    return ResourceKindRecord(
        family=kind.family,
        kind=kind.type,
        crn=kind.crn,
        policy_actions=sorted(own),
        public_actions=sorted(public),
    )


@get("/v1/actions", opt={"action": None})
async def list_actions(ctx: NamedDependency[RequestContext]) -> ManyActions:
    """List all actions, resources, conditions and principals that policies can name."""
    return list_vocabulary(ctx.vocabulary)


HANDLERS: Final = (list_actions,)
