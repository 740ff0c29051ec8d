"""Delete keys whose deletion is due, and record it in the audit log."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.iam.audit import AuditEvent
from cloudcore.kms.key import KEY
from cloudcore.kms.needs import KmsNeeds
from cloudcore.kms.rows import list_due
from cloudcore.kms.services import delete_due_key

ACTION: Final = "kms:DeleteKey"
"""The action in the audit log; no policy can name it, since no caller requests it."""
_BATCH: Final = 100


async def delete_due_keys(needs: KmsNeeds) -> None:
    """Delete all keys that are due, each in a transaction of its own."""
    now = needs.clock()
    while due := await needs.database.read(list_due, now, _BATCH):
        for account_id, key_id in due:
            await needs.database.write(_delete, needs, account_id, key_id, now)


def _delete(tx: Connection, needs: KmsNeeds, account_id: str, key_id: str, now: int) -> None:
    deleted = delete_due_key(tx, account_id, key_id, now)
    if deleted is None:
        return
    event = AuditEvent(
        id=needs.new_id(),
        owner_id=account_id,
        occurred_at=now,
        action=ACTION,
        resources=(KEY.crn_of(deleted),),
        principal="",
        source=None,
        client=None,
        details={"key_id": key_id, "versions": deleted.current_version},
    )
    needs.auditor.record(tx, event)
