"""Check the kind of the caller: programs and assumed roles act in an account, persons do not."""

from __future__ import annotations

from cloudcore.errors import AccessDenied
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.web.context import RequestContext


def account_of(ctx: RequestContext) -> str:
    """Return the id of the account in which the caller acts.

    Raise `AccessDenied` if the caller is a person without an assumed role.
    """
    if ctx.caller is None or ctx.caller.account_id is None:
        raise AccessDenied("a person calls account services in an assumed role")
    return ctx.caller.account_id


def person_of(ctx: RequestContext) -> Principal:
    """Return the caller, who must be a person.

    Raise `AccessDenied` if the caller is a service account or a role session.
    """
    if ctx.caller is None or ctx.caller.kind is not PrincipalKind.USER:
        raise AccessDenied("this needs a person")
    return ctx.caller
