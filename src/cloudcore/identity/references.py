"""Find the role or the service account that a request means: by its id, its CRN or its name."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.identity.names import missing
from cloudcore.identity.rows.roles import Role, find_role, find_role_named
from cloudcore.identity.rows.service_accounts import (
    ServiceAccount,
    find_service_account,
    find_service_account_named,
)
from cloudcore.resource_references import Authorize, Kind, Scope, resolve


def resolve_role(tx: Connection, account_id: str, text: str, authorize: Authorize) -> Role:
    """Return the role of an account that `text` means; `authorize` raises unless it may be used.

    Raises:
        InvalidInput: it is no reference to a role of this account.
        AccessDenied: by `authorize`.
        NotFound: there is no such role.

    """
    return resolve(tx, Scope(account_id, ""), _ROLE, "role", text, authorize)


def resolve_service_account(
    tx: Connection, account_id: str, text: str, authorize: Authorize
) -> ServiceAccount:
    """Return the service account that `text` means; it raises as `resolve_role`."""
    scope = Scope(account_id, "")
    return resolve(tx, scope, _SERVICE_ACCOUNT, "service_account", text, authorize)


def _role(tx: Connection, scope: Scope, role_id: str) -> Role | None:
    return find_role(tx, scope.account_id, role_id)


def _role_named(tx: Connection, scope: Scope, name: str) -> Role | None:
    return find_role_named(tx, scope.account_id, name)


def _service_account(
    tx: Connection, scope: Scope, service_account_id: str
) -> ServiceAccount | None:
    return find_service_account(tx, scope.account_id, service_account_id)


def _service_account_named(tx: Connection, scope: Scope, name: str) -> ServiceAccount | None:
    return find_service_account_named(tx, scope.account_id, name)


def _missing_role() -> NotFound:
    return missing("role")


def _missing_service_account() -> NotFound:
    return missing("service account")


_ROLE: Final = Kind("iam", "role", _role, _role_named, _missing_role)
_SERVICE_ACCOUNT: Final = Kind(
    "iam",
    "service-account",
    _service_account,
    _service_account_named,
    _missing_service_account,
)
