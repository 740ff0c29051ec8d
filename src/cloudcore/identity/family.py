"""The identity family: accounts, organizations, persons, service accounts, roles, policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.iam.policy import TRUST_ACTION, PolicyKind
from cloudcore.iam.vocabulary import OwnPolicy, ResourceKind, StoredPolicy, standard_actions
from cloudcore.identity.names import QUOTAS

if TYPE_CHECKING:
    from cloudcore.db.base import Connection
    from cloudcore.identity.needs import IdentityNeeds
    from cloudcore.resource_names import Crn


def _trust_policy(tx: Connection, crn: Crn) -> StoredPolicy | None:
    from cloudcore.identity.rows.roles import ROLES  # noqa: PLC0415 - SQLAlchemy

    role = ROLES.find_named(tx, crn.account, crn.name)
    return None if role is None else StoredPolicy(role.trust_policy, role.trust_ids)


IDENTITY: Final[Family[IdentityNeeds]] = Family(
    name="iam",
    host="auth",
    runs="cloudcore.identity.runtime:RUNTIME",
    paths=(
        "/.well-known/oauth-authorization-server",
        "/v1/accounts",
        "/v1/actions",
        "/v1/allowed-actions",
        "/v1/assume-role",
        "/v1/jwks",
        "/v1/oauth",
        "/v1/organizations",
        "/v1/policies",
        "/v1/policy-simulations",
        "/v1/policy-templates",
        "/v1/roles",
        "/v1/service-accounts",
        "/v1/users",
    ),
    resource_kinds=(
        ResourceKind(
            crn="crn:iam::<organization>:organization/<organization>",
            actions=(
                *standard_actions("iam", "IdentityProvider"),
                "iam:DeleteOrganization",
                "iam:GetOrganization",
                "iam:InviteMember",
                "iam:LeaveOrganization",
                "iam:ListInvitations",
                "iam:ListMembers",
                "iam:RemoveMember",
                "iam:RevokeInvitation",
                "iam:UpdateMember",
                "iam:UpdateOrganization",
            ),
            summaries={"iam:LeaveOrganization": "Leave an organization."},
        ),
        ResourceKind(
            crn="crn:iam::<account>:account/<handle>",
            actions=(
                "iam:CreateAccount",
                "iam:GetAccount",
                "iam:ListAccounts",
                "iam:UpdateAccount",
            ),
        ),
        ResourceKind(
            crn="crn:iam::<organization>:user/<id>",
            actions=(
                "iam:AcceptInvitation",
                "iam:ChangePassword",
                "iam:CreateContainerPassword",
                "iam:CreateOrganization",
                *standard_actions("iam", "User"),
                "iam:DeleteContainerPassword",
                "iam:GetContainerPassword",
                "iam:ListContainerPasswords",
                "iam:ListOrganizations",
                "iam:ResetPassword",
                "iam:SwitchOrganization",
            ),
            summaries={"iam:GetUser": "Read a person's record, also one's own."},
        ),
        ResourceKind(
            crn="crn:iam::<account>:service-account/<name>",
            actions=(
                *standard_actions("iam", "AccessKey"),
                *standard_actions("iam", "ServiceAccount"),
            ),
        ),
        ResourceKind(
            crn="crn:iam::<account>:role/<name>",
            actions=(
                "iam:AssignRole",
                "iam:AssumeRole",
                *standard_actions("iam", "Role"),
                "iam:ListRoleAssignments",
                "iam:PassRole",
                "iam:UnassignRole",
            ),
            summaries={
                "iam:AssumeRole": "Assume the role, if its trust policy allows it too.",
                "iam:PassRole": "Let a resource, such as an instance pool, act as the role.",
            },
            own_policy=OwnPolicy(
                _trust_policy,
                PolicyKind.TRUST,
                frozenset({TRUST_ACTION}),
                "iam:GetRole",
                is_required=True,
            ),
        ),
        ResourceKind(
            crn="crn:iam::<account>:policy/<name>",
            actions=(
                "iam:AttachPolicy",
                *standard_actions("iam", "Policy", "Policies"),
                "iam:DetachPolicy",
                "iam:ListPolicyAttachments",
                "iam:SimulatePolicy",
            ),
        ),
    ),
    recorded_actions=("iam:LinkUser", "iam:SignIn", "iam:SignOut"),
    quotas=QUOTAS,
    commands=(
        CommandGroup(
            "people and rights",
            tuple(
                f"cloudcore.identity.commands.{subject}"
                for subject in (
                    "whoami",
                    "container_passwords",
                    "accounts",
                    "service_accounts",
                    "organizations",
                    "identity_providers",
                    "roles",
                    "policies",
                )
            ),
        ),
    ),
)
