"""What policies can name, ready-made policies, and what the caller may do.

These are ``/v1/actions``, ``/v1/policy-templates`` and ``/v1/allowed-actions``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.iam.conditions import CONDITION_DOCS
from cloudcore.iam.policy import PRINCIPAL_DOCS
from cloudcore.iam.templates import find_template
from cloudcore.iam.vocabulary import ResourceKind, Vocabulary
from cloudcore.identity.rights import own_rights
from cloudcore.identity.rights.own_rights import RightsQuestion, RightsRequest
from cloudcore.identity.routes.common import parse_crn
from cloudcore.identity.rows.accounts import find_account_ids
from cloudcore.resource_names import Crn
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody


class ActionRecord(ResponseBody):
    """An action."""

    name: str
    family: str
    resource: str
    """Form of the CRNs of the action's resources; variable parts are in angle brackets."""
    summary: str
    operations: Sequence[str]
    """Methods and paths of the operations on `/v1` that require the action."""


class ResourceKindRecord(ResponseBody):
    """A kind of resource."""

    family: str
    kind: str
    crn: str
    """Form of the kind's CRNs; variable parts are in angle brackets."""
    policy_actions: Sequence[str]
    """The actions that a resource's own policy may name; none if it has no policy."""
    public_actions: Sequence[str]
    """Those of `policy_actions` that may be allowed to everyone."""


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
    """Return everything that policies can name, sorted."""
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
async def list_actions(ctx: Context) -> ManyActions:
    """List all actions, resources, conditions and principals that policies can name."""
    return list_vocabulary(ctx.vocabulary)


class AskAboutResource(RequestBody):
    """A resource, and the actions to ask about."""

    resource: Annotated[str, Meta(min_length=1, max_length=700)]
    """CRN of a resource of the caller's account, which need not exist. The name ``*`` asks about
    all resources of the kind."""
    actions: (
        Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(min_length=1, max_length=50)]
        | None
    ) = None
    """By default, all actions of the resource's kind."""


class AskAboutResources(RequestBody):
    """Resources to ask about."""

    questions: Annotated[list[AskAboutResource], Meta(min_length=1, max_length=100)]


class AllowedActionsRecord(ResponseBody):
    """What the caller may do on a resource now."""

    resource: str
    """The resource as in the request."""
    actions: Sequence[str]
    """The allowed actions. A request may still be refused for another reason, such as a pin."""
    on_some: Sequence[str] | UnsetType = UNSET
    """Only for the name ``*``: the actions that are allowed on at least one name, for example on
    names with a prefix."""


class ManyAllowedActions(ResponseBody):
    """The answers, in the order of the questions."""

    allowed_actions: Sequence[AllowedActionsRecord]


@post("/v1/allowed-actions", status_code=200, opt={"action": None, "statuses": (403,)})
async def ask_allowed_actions(
    data: JSONBody[AskAboutResources], ctx: Context
) -> ManyAllowedActions:
    """Return which actions the policies of the caller and of the resources allow the caller.

    This changes nothing, and needs no permission: every caller may learn what it may do.
    """
    account_id = account_of(ctx)
    assert ctx.caller is not None
    questions = await ctx.database.read(_questions, ctx, account_id, data.questions)
    own_policies = await ctx.database.read(own_rights.load_own_policies, questions)
    asking = RightsRequest(ctx.caller, await ctx.own_policies(), ctx.source_ip, ctx.clock())
    records = []
    for given, question, attached in zip(data.questions, questions, own_policies, strict=True):
        found = own_rights.rights_of(asking, question, attached)
        record = AllowedActionsRecord(resource=given.resource, actions=found.actions)
        if question.resource.name == own_rights.ANY_NAME:
            record.on_some = found.on_some
        records.append(record)
        await asyncio.sleep(0)  # a decision may take milliseconds; let other requests run
    return ManyAllowedActions(allowed_actions=records)


def _questions(
    tx: Connection, ctx: RequestContext, account_id: str, asked: Sequence[AskAboutResource]
) -> list[RightsQuestion]:
    """Convert the questions of a request, with account ids in place of handles.

    Raise `InvalidInput` if a resource or an action is unknown, or the resource belongs to another
    account.
    """
    crns = [parse_crn(each.resource, f"questions[{at}].resource") for at, each in enumerate(asked)]
    ids = find_account_ids(tx, sorted({crn.account for crn in crns}))
    return [
        _question(ctx, account_id, crn._replace(account=ids.get(crn.account, crn.account)), *given)
        for crn, given in zip(crns, enumerate(asked), strict=True)
    ]


def _question(
    ctx: RequestContext, account_id: str, crn: Crn, at: int, asked: AskAboutResource
) -> RightsQuestion:
    field = f"questions[{at}].resource"
    if crn.account != account_id:  # before an error that shows the id of the account
        words = f"{field}: it is not a resource of your account"
        raise InvalidInput(words, field=field, reason="foreign_account")
    kind = ctx.vocabulary.kind_of(crn, field)
    for action in asked.actions or ():
        ctx.vocabulary.check_action(action, f"questions[{at}].actions")
    return RightsQuestion(crn, asked.actions or sorted(kind.actions), kind.own_policy)


TemplateName = Annotated[str, Meta(min_length=1, max_length=63)]
ResourceNames = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=300)]], Meta(min_length=1, max_length=20)
]
"""Names of resources; a name that ends in `*` stands for all names with that prefix."""


class FilledTemplate(RequestBody):
    """A template, and the names of the resources to fill it with."""

    name: TemplateName
    names: ResourceNames


class TemplateQuery(msgspec.Struct):
    """The resources to fill templates with."""

    names: Annotated[str, Meta(min_length=1, max_length=5200)] = "*"
    """Names of resources, separated by commas; a name that ends in `*` stands for all names with
    that prefix."""


class PolicyTemplateRecord(ResponseBody):
    """A ready-made policy."""

    name: str
    family: str
    summary: str
    document: dict[str, Any]
    """The policy for the names in the query."""


class ManyPolicyTemplates(ResponseBody):
    """All ready-made policies."""

    policy_templates: Sequence[PolicyTemplateRecord]


def document_of(ctx: RequestContext, template: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the policy document of a template for resources of the caller's account.

    Raise `InvalidInput` if there is no such template, or it does not accept these names.
    """
    found = find_template(ctx.vocabulary.templates, template)
    return found.document(names, ctx.settings.region, account_of(ctx))


@get("/v1/policy-templates", opt={"action": None, "query": TemplateQuery, "statuses": (403,)})
async def list_policy_templates(ctx: Context) -> ManyPolicyTemplates:
    """List the ready-made policies, filled with names of resources."""
    names = ctx.query(TemplateQuery).names.split(",")
    account_id = account_of(ctx)
    return ManyPolicyTemplates(
        policy_templates=[
            PolicyTemplateRecord(
                name=each.name,
                family=each.family,
                summary=each.summary,
                document=each.document(names, ctx.settings.region, account_id),
            )
            for each in ctx.vocabulary.templates
        ]
    )
