"""Bodies for the operations of identity, and the rows they may have changed."""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
from sqlalchemy import select

from cloudcore.db.base import Connection
from cloudcore.db.schema import metadata
from cloudcore.db.statement import Statement
from cloudcore.web.route_spec import RouteSpec
from tests.identity_world import ALLOW_ALL

DOCUMENT: Final = {"version": "1", "statements": [ALLOW_ALL]}
TRUST: Final = {"version": "1", "statements": [{"effect": "allow", "principals": ["acme"]}]}
BODIES: Final[dict[str, Any]] = {
    "POST /v1/accounts": {"handle": "another"},
    "PATCH /v1/accounts/{account_id}": {"auto_create_repositories": False},
    "POST /v1/organizations": {"name": "New"},
    "PATCH /v1/organizations/{organization_id}": {"name": "New"},
    "POST /v1/organizations/{organization_id}/accept": {"code": "ein_wrong"},
    "POST /v1/organizations/{organization_id}/switch": None,
    "POST /v1/organizations/{organization_id}/invitations": {"email": "new@example.org"},
    "POST /v1/organizations/{organization_id}/identity-providers": {
        "name": "New",
        "issuer": "https://login.example.net",
        "client_id": "entrepot",
        "client_secret": "a secret of the client",
    },
    "PATCH /v1/organizations/{organization_id}/identity-providers/{provider_id}": {
        "name": "Renamed"
    },
    "POST /v1/roles/{role_id}/group-assignments": {
        "identity_provider": "01890000-0000-7000-8000-0000000000ff",
        "group": "devs",
    },
    "PATCH /v1/organizations/{organization_id}/members/{user_id}": {"role": "billing"},
    "PUT /v1/users/me/password": {"current_password": "x", "password": "long enough for us"},
    "POST /v1/users/me/container-passwords": {"name": "desktop", "role": "admin"},
    "POST /v1/users": {"email": "made@example.org"},
    "PATCH /v1/users/{user_id}": {"status": "suspended"},
    "POST /v1/users/{user_id}/reset-password": None,
    "POST /v1/service-accounts": {"name": "new"},
    "PATCH /v1/service-accounts/{service_account_id}": {"description": "New."},
    "POST /v1/service-accounts/{service_account_id}/access-keys": {},
    "PATCH /v1/service-accounts/{service_account_id}/access-keys/{key_id}": {"status": "inactive"},
    "POST /v1/roles": {"name": "new", "trust_policy": TRUST},
    "PATCH /v1/roles/{role_id}": {"description": "New.", "trust_policy": TRUST},
    "POST /v1/roles/{role_id}/assignments": {"user": "member@example.org"},
    "POST /v1/policies": {"name": "new", "document": DOCUMENT},
    "PATCH /v1/policies/{policy_id}": {"description": "New.", "document": DOCUMENT},
    "POST /v1/policy-simulations": {
        "principal": "crn:iam::acme:service-account/free",
        "actions": ["iam:GetRole"],
        "resource": "crn:iam::acme:role/admin",
    },
    "POST /v1/allowed-actions": {"questions": [{"resource": "crn:iam::acme:role/admin"}]},
    "POST /v1/policies/{policy_id}/attachments": {"service_account": "free"},
}


def fields_of(spec: RouteSpec) -> set[str]:
    """Return the fields that the body of an operation may have."""
    shapes = [each for each in (spec.body, *get_args(spec.body)) if isinstance(each, type)]
    return {
        name
        for shape in shapes
        if issubclass(shape, msgspec.Struct)
        for name in shape.__struct_fields__
    }


def dump(tx: Connection) -> str:
    """Return all rows of identity but those that count requests and keep their outcomes."""
    apart = {"idempotency_records", "rate_windows"}
    tables = [table for table in metadata.sorted_tables if table.name not in apart]
    return repr([sorted(map(repr, tx.rows(Statement(select(table))))) for table in tables])
