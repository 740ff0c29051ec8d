"""``/v1/allowed-actions``: what the caller itself may do on resources of its account."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.crn import Crn, lower_ids
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.identity.own_rights import (
    ANY_NAME,
    Asking,
    RightsQuestion,
    load_own_policies,
    rights_of,
)
from cloudcore.identity.rows.accounts import find_account_ids
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody, ResponseBody


class AskAboutResource(RequestBody):
    """A resource, and the actions to ask about."""

    resource: Annotated[str, Meta(min_length=1, max_length=700)]
    """CRN of a resource of the caller's account, which need not exist. The name ``*`` asks about
    all resources of the kind."""
    actions: (
        Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(min_length=1, max_length=50)]
        | None
    ) = None
    """Without them, all actions of the resource's kind."""


class AskAboutResources(RequestBody):
    """Resources to ask about."""

    questions: Annotated[list[AskAboutResource], Meta(min_length=1, max_length=100)]


class AllowedActionsRecord(ResponseBody):
    """What the caller may do on a resource now."""

    resource: str
    """As it was given."""
    actions: Sequence[str]
    """The allowed ones. A request may be refused for another reason, such as a pin."""
    on_some: Sequence[str] | UnsetType = UNSET
    """Only for the name ``*``: the actions that are allowed on at least one name, such as those
    that begin in some way."""


class ManyAllowedActions(ResponseBody):
    """The answers, in the order of the questions."""

    allowed_actions: Sequence[AllowedActionsRecord]


@post("/v1/allowed-actions", status_code=200, opt={"action": None, "statuses": (403,)})
async def ask_allowed_actions(
    data: JSONBody[AskAboutResources], ctx: NamedDependency[RequestContext]
) -> ManyAllowedActions:
    """Tell which actions the caller's policies and those of the resources allow the caller.

    It changes nothing, and needs no permission: a caller may learn what it may do.
    """
    account_id = account_of(ctx)
    assert ctx.caller is not None
    questions = await ctx.database.read(_questions, ctx, account_id, data.questions)
    own_policies = await ctx.database.read(load_own_policies, questions)
    asking = Asking.of(ctx.caller, await ctx.own_policies(), ctx.source_ip, ctx.clock())
    records = []
    for given, question, attached in zip(data.questions, questions, own_policies, strict=True):
        found = rights_of(asking, question, attached)
        record = AllowedActionsRecord(resource=given.resource, actions=found.actions)
        if question.resource.name == ANY_NAME:
            record.on_some = found.on_some
        records.append(record)
        await asyncio.sleep(0)  # a decision may take milliseconds; let other requests run
    return ManyAllowedActions(allowed_actions=records)


def _questions(
    tx: Connection, ctx: RequestContext, account_id: str, asked: Sequence[AskAboutResource]
) -> list[RightsQuestion]:
    """Return the questions, with accounts by id.

    Raises:
        InvalidInput: a resource or an action is unknown, or the resource is another account's.

    """
    crns = [_crn(each.resource, f"questions[{at}].resource") for at, each in enumerate(asked)]
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
    return RightsQuestion(crn, asked.actions or kind.actions, kind.own_policy)


def _crn(text: str, field: str) -> Crn:
    try:
        return Crn.parse(lower_ids(text))
    except InvalidInput as error:
        words = f"{field}: {error.message}"
        raise InvalidInput(words, field=field, reason="malformed_crn") from None


HANDLERS: Final = (ask_allowed_actions,)
