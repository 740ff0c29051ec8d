"""Check who may create organizations and accounts (the operator's `ENTREPOT_FOUNDERS`)."""

from __future__ import annotations

from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied
from cloudcore.identity.rows.organizations import Joined, count_owned
from cloudcore.web.context import RequestContext


def check_founds_organizations(ctx: RequestContext, tx: Connection, user_id: str) -> None:
    """Refuse a person who may not create an organization on this install.

    Raises:
        AccessDenied.

    """
    founders = ctx.settings.founders
    if founders == "anyone" or (founders == "owners" and count_owned(tx, user_id)):
        return
    raise _refusal(ctx)


def check_founds_accounts(ctx: RequestContext, joined: Joined | None) -> None:
    """Refuse a caller who may not create an account in the `joined` organization, if any.

    Raises:
        AccessDenied.

    """
    founders = ctx.settings.founders
    is_owner = joined is not None and joined.role == "owner"
    if founders == "anyone" or (
        founders == "owners" and is_owner and joined is not None and not joined.is_personal
    ):
        return
    raise _refusal(ctx)


def _refusal(ctx: RequestContext) -> AccessDenied:
    who = "nobody" if ctx.settings.founders == "nobody" else "only owners of an organization"
    return AccessDenied(f"{who} may found organizations and accounts here; ask the operator")
