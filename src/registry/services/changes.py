"""Who makes a change, when and where; record changes of ``/v2`` and ends of runs for the audit log.

Changes of ``/v1`` are recorded by the kernel itself.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cloudcore.audit.log import record
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.iam.audit import AuditClient, AuditEvent
from cloudcore.iam.principal import Source, read_source, stored_source
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import Run
from registry.counted import RUNS
from registry.metadata.repositories.live import Repository
from registry.services.access import repository_crn

if TYPE_CHECKING:  # which has what is below
    from registry.services.context import ServiceContext


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
    source: Source | None = None
    """Who is behind the principal; None for an unauthenticated client."""
    client: AuditClient | None = None
    """The request on the data plane; None if nothing or the control plane records the change."""
    details: MutableMapping[str, Any] | None = None
    """Further details of the change's event in the audit log."""

    def begin(self) -> None:
        """Forget what was told: the transaction begins, perhaps again after a conflict.

        On ``/v1``, the kernel does it.
        """
        if self.details is not None:
            self.details.clear()

    def tell(self, kind: str, name: str, value: object) -> None:
        """Add to the details that `value` became of the thing `name`."""
        if self.details is not None:
            self.details.setdefault(kind, {})[str(name)] = value

    @property
    def stored_source(self) -> str | None:
        """Return the source as rows hold it."""
        return stored_source(self.source)


_DECIMALS: Final = 3
_log = logging.getLogger(__name__)


def record_change(
    tx: Connection, change: Change, action: str, repository: Repository, **details: object
) -> None:
    """Record a change of a repository in its transaction, with what was told since it began.

    A transaction that tells calls `Change.begin` first: after a conflict it runs again.

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
    record(tx, event)


def record_run(
    action: str,
    crn: str,
    deletions: Sequence[str],
    tx: Connection,
    run: Run,
    job: Job,
) -> None:
    """Record a run that ends and has deleted something: one event with its counts.

    `crn` is the run's own, `deletions` are the names of the counts of what it deleted.
    """
    if not any(run.counts[name] for name in deletions):
        return
    assert run.finished_at is not None
    details: dict[str, object] = {"run": crn, "state": run.state, **run.counts}
    if run.fault is not None:
        details["fault"] = run.fault
    event = AuditEvent(
        id=uuid7(run.finished_at),
        owner_id=run.account_id,
        occurred_at=run.finished_at,
        action=action,
        resources=(job.resource or "",),
        principal=run.started_by or crn,
        source=read_source(run.started_by_source),
        client=None,
        details=details,
    )
    record(tx, event)


def log_end(ctx: ServiceContext, what: str, run: Run, **about: str | int) -> None:
    """Log and count that a run has ended; `what` names its kind, `about` are further fields.

    Call it after the commit that ended the run, so that each run is logged once.
    """
    ctx.count(f"{RUNS}.{what}.{run.state}", 1)
    assert run.finished_at is not None
    seconds = round((run.finished_at - run.started_at) / MICROSECONDS, _DECIMALS)
    fields: dict[str, str | int | float] = {
        "run_id": run.id,
        "account_id": run.account_id,
        "run_status": run.state,
        **about,
        "duration_seconds": seconds,
    }
    if run.fault is not None:
        fields["fault"] = run.fault
    _log.info("%s %s %s", what, run.id, run.state, extra={"fields": fields})
