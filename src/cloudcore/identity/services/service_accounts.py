"""Service accounts, the identities of programs: changes with their rules."""

from __future__ import annotations

from typing import Any

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS, ServiceAccount


def create_service_account(tx: Connection, service_account: ServiceAccount) -> ServiceAccount:
    """Create a service account without rights."""
    increment_revision(tx, service_account.account_id)
    if not SERVICE_ACCOUNTS.add(tx, service_account):
        raise Conflict("there is a service account of this name", name=service_account.name)
    return service_account


def update_service_account(
    tx: Connection, account_id: str, service_account_id: str, changes: dict[str, Any], now: int
) -> ServiceAccount:
    """Change the given fields of a service account."""
    increment_revision(tx, account_id)
    found = SERVICE_ACCOUNTS.get(tx, account_id, service_account_id)
    if changes:
        found = found._replace(**changes, updated_at=now)
        SERVICE_ACCOUNTS.save(tx, found)
    return found


def delete_service_account(tx: Connection, account_id: str, service_account_id: str) -> None:
    """Delete a service account with its keys and the sessions and credentials made with them."""
    increment_revision(tx, account_id)
    found = SERVICE_ACCOUNTS.get(tx, account_id, service_account_id)
    SERVICE_ACCOUNTS.remove(tx, account_id, found.id)
