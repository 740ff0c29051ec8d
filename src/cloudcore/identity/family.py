"""The identity family: accounts, organizations, persons, service accounts, roles, policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.iam.policy import TRUST_ACTION, PolicyKind
from cloudcore.iam.vocabulary import OwnPolicy, ResourceKind, StoredPolicy
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
                "iam:CreateIdentityProvider",
                "iam:DeleteIdentityProvider",
                "iam:DeleteOrganization",
                "iam:GetIdentityProvider",
                "iam:GetOrganization",
                "iam:InviteMember",
                "iam:LeaveOrganization",
                "iam:ListIdentityProviders",
                "iam:ListInvitations",
                "iam:ListMembers",
                "iam:RemoveMember",
                "iam:RevokeInvitation",
                "iam:UpdateIdentityProvider",
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
                "iam:CreateUser",
                "iam:DeleteContainerPassword",
                "iam:DeleteUser",
                "iam:GetContainerPassword",
                "iam:GetUser",
                "iam:ListContainerPasswords",
                "iam:ListOrganizations",
                "iam:ListUsers",
                "iam:ResetPassword",
                "iam:SwitchOrganization",
                "iam:UpdateUser",
            ),
            summaries={"iam:GetUser": "Read a person's record, also one's own."},
        ),
        ResourceKind(
            crn="crn:iam::<account>:service-account/<name>",
            actions=(
                "iam:CreateAccessKey",
                "iam:CreateServiceAccount",
                "iam:DeleteAccessKey",
                "iam:DeleteServiceAccount",
                "iam:GetAccessKey",
                "iam:GetServiceAccount",
                "iam:ListAccessKeys",
                "iam:ListServiceAccounts",
                "iam:UpdateAccessKey",
                "iam:UpdateServiceAccount",
            ),
        ),
        ResourceKind(
            crn="crn:iam::<account>:role/<name>",
            actions=(
                "iam:AssignRole",
                "iam:AssumeRole",
                "iam:CreateRole",
                "iam:DeleteRole",
                "iam:GetRole",
                "iam:ListRoleAssignments",
                "iam:ListRoles",
                "iam:PassRole",
                "iam:UnassignRole",
                "iam:UpdateRole",
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
                "iam:CreatePolicy",
                "iam:DeletePolicy",
                "iam:DetachPolicy",
                "iam:GetPolicy",
                "iam:ListPolicies",
                "iam:ListPolicyAttachments",
                "iam:SimulatePolicy",
                "iam:UpdatePolicy",
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
                    "roles",
                    "policies",
                )
            ),
        ),
    ),
)
