"""Authorize persons for organizations that they name, on routes where programs use an account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from cloudcore.iam.policy import Policy
from cloudcore.ports import Port
from cloudcore.resource_names import Crn
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import RequestContext

MembershipPolicy = Callable[[RequestContext, str], Awaitable[Policy | None]]
"""Gets the CRN of an organization; returns the policy of the caller's membership in it, or None."""
MEMBERSHIP_POLICY: Final[Port[MembershipPolicy]] = Port("platform.membership_policy")


async def authorize_organization(
    ctx: RequestContext, organization_id: str, policy: MembershipPolicy
) -> str:
    """Authorize the route's action on an organization; return the id in lower case, as stored.

    Raise `AccessDenied` if no policy allows the action; `policy` finds that of the membership.
    """
    owner_id = organization_id.lower()
    crn = organization_ref(owner_id, "").crn
    ctx.authorize(crn, resource_policy=await policy(ctx, crn))
    return owner_id


def organization_ref(organization_id: str, name: str) -> ResourceRef:
    """Return the reference to an organization for a response."""
    crn = str(Crn("iam", "", organization_id, "organization", organization_id))
    return ResourceRef(id=organization_id, crn=crn, name=name)


def account_ref(account_id: str, handle: str) -> ResourceRef:
    """Return the reference to an account for a response."""
    crn = str(Crn("iam", "", account_id, "account", handle))
    return ResourceRef(id=account_id, crn=crn, name=handle)
