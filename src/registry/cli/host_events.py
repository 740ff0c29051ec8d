"""Record in the audit log what an operator changes on the registry's machine, without a sign-in."""

from __future__ import annotations

from collections.abc import Sequence

from cloudcore.audit.log import record
from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.iam.audit import AuditEvent


def record_on_host(
    tx: Connection, action: str, owners: Sequence[str], resource: str, command: str, now: int
) -> None:
    """Record the change of a command, in its transaction, for each owner."""
    for owner_id in owners:
        event = AuditEvent(
            id=uuid7(now),
            owner_id=owner_id,
            occurred_at=now,
            action=action,
            resources=(resource,),
            principal="",
            source=None,
            client=None,
            details={"command": command},
        )
        record(tx, event)
