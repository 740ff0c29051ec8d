"""Service accounts, the identities of programs: changes with their rules."""

from __future__ import annotations

from typing import Any

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.names import missing
from cloudcore.identity.rows import service_accounts as rows
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.service_accounts import ServiceAccount


def create_service_account(tx: Connection, service_account: ServiceAccount) -> ServiceAccount:
    """Create a service account without rights."""
    increment_revision(tx, service_account.account_id)
    if not rows.add_service_account(tx, service_account):
        raise Conflict("there is a service account of this name", name=service_account.name)
    return service_account


def get_service_account(tx: Connection, account_id: str, service_account_id: str) -> ServiceAccount:
    """Return a service account of an account, or raise `NotFound`."""
    found = rows.find_service_account(tx, account_id, service_account_id)
    if found is None:
        raise missing("service account")
    return found


def update_service_account(
    tx: Connection, account_id: str, service_account_id: str, changes: dict[str, Any], now: int
) -> ServiceAccount:
    """Change the given fields of a service account."""
    increment_revision(tx, account_id)
    found = get_service_account(tx, account_id, service_account_id)
    if changes:
        found = found._replace(**changes, updated_at=now)
        rows.save_service_account(tx, found)
    return found


def delete_service_account(tx: Connection, account_id: str, service_account_id: str) -> None:
    """Delete a service account with its keys and the sessions and credentials made with them."""
    increment_revision(tx, account_id)
    found = get_service_account(tx, account_id, service_account_id)
    rows.remove_service_account(tx, found.id)
