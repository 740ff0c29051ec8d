"""A change: who makes it, when and in which registry; and its event in the audit log.

`record_change` writes the events of changes on ``/v2``. The kernel records those on ``/v1``.
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
    """The host, and port if any, in image references."""


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
    """The client data of a request on the data plane. None if the change is not recorded, or if the
    kernel records it."""
    details: MutableMapping[str, Any] | None = None
    """Further details of the change's event in the audit log."""

    def begin(self) -> None:
        """Discard the collected details; call this when the transaction begins.

        A transaction may be run again after a conflict. On ``/v1``, the kernel discards the
        details.
        """
        if self.details is not None:
            self.details.clear()

    def add_detail(self, kind: str, name: str, value: object) -> None:
        """Add a detail to the audit event: set `name` to `value` in the object `kind`."""
        if self.details is not None:
            self.details.setdefault(kind, {})[str(name)] = value

    @property
    def stored_source(self) -> str | None:
        """Return the source identity in the form that rows store, or None."""
        return stored_source(self.source)

    def deletion(self, restorable_until: int) -> SoftDeletion:
        """Return this change as a deletion that can be undone until `restorable_until`."""
        return SoftDeletion(self.principal, self.stored_source, self.now, restorable_until)


def record_change(
    tx: Connection, change: Change, action: str, repository: Repository, **details: object
) -> None:
    """Write the audit event of a repository's change, in the transaction of the change.

    The event includes the details passed to `Change.add_detail` since `Change.begin`. A transaction
    that calls `add_detail` must call `begin` first, as it may be run again after a conflict.

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
