"""Changes: who makes them, when and where; changes of ``/v2`` go to the audit log from here.

Changes of ``/v1`` are recorded by the kernel itself.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, NamedTuple

from cloudcore.audit.rows import add_event
from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.iam.audit import AuditClient, AuditEvent
from cloudcore.iam.principal import SourceIdentity, stored_source
from registry.metadata.repositories.repository import Repository
from registry.metadata.tags.deleted import SoftDeletion
from registry.services.access.decisions import repository_crn


class RegistryHost(NamedTuple):
    """The region and host of this registry, for CRNs and image references."""

    region: str
    pull_host: str
    """Host, and port if any, of image references."""


class Change(NamedTuple):
    """The caller, time and registry of one change."""

    principal: str
    """CRN of the caller; empty for an unauthenticated client."""
    now: int
    """Microseconds since the epoch."""
    registry_host: RegistryHost
    source: SourceIdentity | None = None
    """The source identity behind the principal; None for an unauthenticated client."""
    client: AuditClient | None = None
    """The request on the data plane; None if nothing or the control plane records the change."""
    details: MutableMapping[str, Any] | None = None
    """Further details of the change's event in the audit log."""

    def begin(self) -> None:
        """Discard collected details, as the transaction begins, perhaps again after a conflict.

        On ``/v1``, the kernel does this.
        """
        if self.details is not None:
            self.details.clear()

    def tell(self, kind: str, name: str, value: object) -> None:
        """Add an audit detail: under `kind`, the thing `name` got the value `value`."""
        if self.details is not None:
            self.details.setdefault(kind, {})[str(name)] = value

    @property
    def stored_source(self) -> str | None:
        """Return the source identity in the form that rows store."""
        return stored_source(self.source)

    def deletion(self, restorable_until: int) -> SoftDeletion:
        """Return the record of a deletion that this change makes."""
        return SoftDeletion(self.principal, self.stored_source, self.now, restorable_until)


def record_change(
    tx: Connection, change: Change, action: str, repository: Repository, **details: object
) -> None:
    """Write the audit event of a repository's change, in the transaction of the change.

    The event includes the details passed to `Change.tell` since `Change.begin`. A transaction that
    calls `tell` must call `begin` first, as it may be run again after a conflict.

    Nothing is recorded for a change without a client: under ``entrepot dev`` nobody signs in, and
    the registry's own runs are recorded when they end.
    """
    if change.client is None:
        return
    region = change.registry_host.region
    event = AuditEvent(
        id=uuid7(change.now),
        owner_id=repository.account_id,
        occurred_at=change.now,
        action=action,
        resources=(repository_crn(region, repository.account_id, repository.name),),
        principal=change.principal,
        source=change.source,
        client=change.client,
        details={**details, **(change.details or {})},
    )
    add_event(tx, event)
