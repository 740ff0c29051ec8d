"""The job that does whatever is to be done with a certificate: one for each, so one at a time."""

from __future__ import annotations

from typing import Final, Literal

from cloudcore.certificate.rows import Certificate
from cloudcore.db.base import Connection
from cloudcore.jobs.queue import NewJob, enqueue

WORK: Final = "certificate.work"
Task = Literal["check", "issue", "revoke"]


def task_of(certificate: Certificate, now: int) -> Task | None:
    """Return what is to be done with a certificate now; what is asked first comes first."""
    if certificate.revocation_asked_at is not None and certificate.status != "revoked":
        return "revoke"
    if certificate.status == "pending_validation":
        return "check"
    if certificate.status == "issuing":
        return "issue"
    if certificate.is_recheck_asked:
        return "check"
    if certificate.renew_at is not None and certificate.renew_at <= now:
        return "issue"
    return None


def wake(tx: Connection, certificate: Certificate, now: int, *, hastens: bool = True) -> None:
    """Let the job look at a certificate now, if it is not at work already.

    One that waits after a failure goes on waiting unless this `hastens` it.
    """
    new = NewJob(
        WORK,
        {"certificate_id": certificate.id},
        certificate.account_id,
        certificate.crn,
        dedup_key=certificate.id,
        hastens=hastens,
    )
    enqueue(tx, new, now)
