"""Runs of the registry: start them, and record their ends in the log and the audit log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from cloudcore.audit.rows import add_event
from cloudcore.clock import MICROSECONDS, uuid7
from cloudcore.db.base import Connection
from cloudcore.iam.audit import AuditEvent
from cloudcore.iam.principal import read_source
from cloudcore.jobs import runs
from cloudcore.jobs.kinds import JobKind
from cloudcore.jobs.queue import Job
from cloudcore.jobs.runs import NewRun, OnEndCommitted, Run, RunStep, run_kind
from registry.counters import RUNS
from registry.services.access.decisions import repository_crn
from registry.services.changes import Change
from registry.services.context import ServiceContext

_DECIMALS: Final = 3
_log = logging.getLogger(__name__)


class RegistryRuns(NamedTuple):
    """A kind of run, over a repository or over a whole account."""

    kind: str
    words: str
    """The name of such a run in the log and the metrics."""
    type: str
    """The resource type in a run's CRN."""
    action: str
    """The action of a run's event in the audit log."""
    counts: Sequence[str]
    deletions: Sequence[str]
    """Names of the counts of deleted or moved content; a run with only zeros is not audited."""
    kept_days: int
    """The number of days for which the records of a resource's runs are kept."""

    def start(
        self,
        tx: Connection,
        account_id: str,
        repository: tuple[str, str] | None,
        run_id: str,
        change: Change,
        arguments: Any = None,  # noqa: ANN401 - JSON
    ) -> Run:
        """Start a run, or return the one that is already running.

        `repository` is (id, name), or None for a run over the whole account.
        """
        scope_id, name = repository or (account_id, "*")
        new = NewRun(
            id=run_id,
            kind=self.kind,
            account_id=account_id,
            scope_id=scope_id,
            resource=repository_crn(change.registry_host.region, account_id, name),
            started_by=change.principal,
            started_by_source=change.stored_source,
            counts=self.counts,
            kept_seconds=self.kept_days * 24 * 3600,
            arguments=arguments,
        )
        return runs.start_run(tx, new, change.now)

    def job_kind(
        self, ctx: ServiceContext, step: RunStep, on_end_committed: OnEndCommitted | None = None
    ) -> JobKind:
        """Return the job kind that carries out these runs.

        `on_end_committed` is called with each run after the commit that ends it.
        """

        def tell_end(run: Run) -> None:
            self._log_end(ctx, run)
            if on_end_committed is not None:
                on_end_committed(run)

        return run_kind(
            self.kind,
            step,
            database=ctx.database,
            clock=ctx.clock,
            on_end=partial(self._record_end, ctx),
            on_end_committed=tell_end,
        )

    def crn_of(self, ctx: ServiceContext, run: Run) -> str:
        """Return the CRN of a run."""
        return f"crn:registry:{ctx.registry_host.region}:{run.account_id}:{self.type}/{run.id}"

    def _record_end(self, ctx: ServiceContext, tx: Connection, run: Run, job: Job) -> None:
        """Write a run's end and counts to the audit log, if the run deleted something."""
        if not ctx.audits or not any(run.counts[name] for name in self.deletions):
            return
        assert run.finished_at is not None
        crn = self.crn_of(ctx, run)
        details: dict[str, object] = {"run": crn, "state": run.state, **run.counts}
        if run.fault is not None:
            details["fault"] = run.fault
        event = AuditEvent(
            id=uuid7(run.finished_at),
            owner_id=run.account_id,
            occurred_at=run.finished_at,
            action=self.action,
            resources=(job.resource or "",),
            principal=run.started_by or crn,
            source=read_source(run.started_by_source),
            client=None,
            details=details,
        )
        add_event(tx, event)

    def _log_end(self, ctx: ServiceContext, run: Run) -> None:
        """Log and count the end of a run; called after the commit, so that it happens only once."""
        ctx.count(f"{RUNS}.{self.words}.{run.state}", 1)
        assert run.finished_at is not None
        over = {} if run.scope_id == run.account_id else {"repository_id": run.scope_id}
        fields: dict[str, str | int | float] = {
            "run_id": run.id,
            "account_id": run.account_id,
            "run_status": run.state,
            **over,
            **run.counts,
            "duration_seconds": round((run.finished_at - run.started_at) / MICROSECONDS, _DECIMALS),
        }
        if run.fault is not None:
            fields["fault"] = run.fault
        _log.info("%s %s %s", self.words, run.id, run.state, extra={"fields": fields})
