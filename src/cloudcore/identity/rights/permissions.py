"""Identity policies of principals, compiled once per revision of the account.

Every change of rights increments `accounts.iam_revision` in its own transaction. So one indexed
read per request shows whether the compiled policies are still current: revocation is immediate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.iam.conditions import NO_CONDITIONS
from cloudcore.iam.patterns import Patterns
from cloudcore.iam.policy import (
    Effect,
    Policy,
    PolicyKind,
    PolicyStatement,
    WeighedCache,
    memory_of,
)
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.iam.vocabulary import standard_actions
from cloudcore.identity.rights.documents import read_stored
from cloudcore.identity.rows.accounts import find_revision
from cloudcore.identity.rows.policies import list_policies_of


class LoginPermission(NamedTuple):
    """The permission that a role needs for container clients to log in with it."""

    action: str
    resource: str
    """CRN of a resource in the role's account."""


PermissionToLogIn = Callable[[str], LoginPermission]
"""Returns the permission that roles of an account (its id) need."""


_PRINCIPAL_BYTES: Final = 500
"""Estimated memory of a cache entry, without its policies."""

OWNER_ACTIONS: Final = (
    "iam:UpdateOrganization",
    "iam:DeleteOrganization",
    "iam:InviteMember",
    "iam:ListInvitations",
    "iam:RevokeInvitation",
    "iam:UpdateMember",
    "iam:RemoveMember",
    "iam:CreateAccount",
    "iam:UpdateAccount",
    "iam:CreateUser",
    "iam:UpdateUser",
    "iam:ResetPassword",
    "iam:DeleteUser",
    "audit:ListAuditEvents",
    "audit:GetAuditEvent",
    *standard_actions("iam", "IdentityProvider"),
)
"""Actions that an owner of an organization may do in it."""
MEMBER_ACTIONS: Final = (
    "iam:GetOrganization",
    "iam:ListMembers",
    "iam:ListUsers",
    "iam:GetUser",
    "iam:LeaveOrganization",
    "iam:ListAccounts",
    "iam:GetAccount",
)
"""Actions that every member of an organization may do in it."""
BILLING_ACTIONS: Final = (
    *standard_actions("billing", "PaymentMethod"),
    "billing:GetInvoice",
    "billing:ListInvoices",
    "billing:PayInvoice",
    "metering:GetUsage",
)
"""Actions that owners and members with the role ``billing`` may do in an organization."""
_OWN_ACTIONS: Final = (
    "iam:CreateOrganization",
    "iam:ListOrganizations",
    "iam:AcceptInvitation",
    "iam:SwitchOrganization",
    "iam:ChangePassword",
    "iam:CreateContainerPassword",
    "iam:GetContainerPassword",
    "iam:ListContainerPasswords",
    "iam:DeleteContainerPassword",
)

PERSON: Final = Policy(
    (
        PolicyStatement(
            Effect.ALLOW,
            Patterns((*OWNER_ACTIONS, *BILLING_ACTIONS, *MEMBER_ACTIONS, *_OWN_ACTIONS)),
            resources=Patterns(
                ("crn:iam::*:organization/*", "crn:iam::*:account/*", "crn:iam::*:user/*")
            ),
            conditions=NO_CONDITIONS,
        ),
    )
)
"""The identity policy of persons who have not assumed a role. In the personal organization it
suffices; in other organizations, `membership` must allow too."""


def membership(role: str, person: str) -> Policy:
    """Return an organization's policy for a member with this role; `person` is the member's CRN."""
    more = {"owner": (*OWNER_ACTIONS, *BILLING_ACTIONS), "billing": BILLING_ACTIONS}.get(role, ())
    actions = Patterns((*MEMBER_ACTIONS, *more))
    return Policy((PolicyStatement(Effect.ALLOW, actions, principals=frozenset({person})),))


class Permissions:
    """Loads and caches the policies of principals; one instance per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._compiled: WeighedCache[str, tuple[int, tuple[Policy, ...]]] = WeighedCache()

    async def policies_of(self, principal: Principal) -> Sequence[Policy]:
        """Return the current identity policies of a principal."""
        if principal.kind is PrincipalKind.USER:
            return (PERSON,)
        assert principal.account_id is not None
        revision = await self._database.read(find_revision, principal.account_id)
        known = self._compiled.get(principal.id)
        if known is not None and known[0] == revision:
            return known[1]
        # Read after the revision: if they are newer than it, the next request reads them again.
        policies = await self._database.read(load_policies, principal)
        weight = _PRINCIPAL_BYTES + sum(map(memory_of, policies))
        self._compiled.keep(principal.id, (revision, policies), weight)
        return policies


def load_policies(tx: Connection, principal: Principal) -> tuple[Policy, ...]:
    """Return the attached policies of a service account or role."""
    assert principal.account_id is not None
    rows = list_policies_of(tx, principal.account_id, principal.id)
    return tuple(read_stored(each.document, each.account_ids, PolicyKind.IDENTITY) for each in rows)
