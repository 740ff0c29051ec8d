"""What the steps of a certificate's job come to: changes, each in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cloudcore.certificate import issue_rows, rows
from cloudcore.certificate.challenges import renewal_at
from cloudcore.certificate.issued import Issued
from cloudcore.certificate.ports import Events
from cloudcore.certificate.resolving import Seen
from cloudcore.certificate.rows import Certificate
from cloudcore.certificate.rules import (
    EXPIRED,
    EXPIRING,
    FAILED,
    ISSUED,
    RENEWAL_FAILED,
    RENEWED,
    REVOKED,
    FaultCode,
)
from cloudcore.certificate.sealing import SealedKey
from cloudcore.certificate.waking import task_of, wake
from cloudcore.db.base import Connection
from cloudcore.jobs.faults import Fault, add_fault


class Problem(NamedTuple):
    """Why a step has failed."""

    code: FaultCode
    message: str
    domains: tuple[Seen, ...] = ()
    """What was wrong with each of some domains; then there is no fault of the whole."""


def note_checks(
    tx: Connection,
    seen: Certificate,
    checks: Sequence[Seen],
    events: Events,
    now: int,
    *,
    is_last: bool,
) -> None:
    """Note what the records of challenges are; a certificate whose domains are proved is issued.

    One that still is not fails if it `is_last`.
    """
    current = _current(tx, seen)
    if current is None:
        return
    verified = {each.domain for each in checks if each.code is None}
    changed = current._replace(
        challenges=tuple(
            each.seen(now) if each.domain in verified else each for each in current.challenges
        ),
        faults=_with_domains(current.faults, checks, now),
        is_recheck_asked=current.is_recheck_asked and not seen.is_recheck_asked,
        updated_at=now,
    )
    is_pending = current.status == "pending_validation"
    is_proved = len(verified) == len(current.challenges)
    if is_pending and is_proved:
        changed = changed._replace(status="issuing")
    elif is_pending and is_last:
        changed = changed._replace(status="failed")
    _save(tx, seen, current, changed, now)
    if changed.status == "failed" and is_pending:
        events.publish(tx, changed, FAILED, now)


def note_issued(
    tx: Connection,
    seen: Certificate,
    issuer: str,
    issued: Issued,
    sealed: SealedKey | None,
    events: Events,
    now: int,
) -> None:
    """Put what was issued in the place of what was before; a success clears all faults.

    `sealed` is its new key, or None if the owner has the key.
    """
    current = _current(tx, seen)
    if current is None:
        return
    is_renewal = current.certificate_pem is not None
    changed = current._replace(
        status="active",
        issuer=issuer,
        challenges=tuple(each.seen(now) for each in current.challenges),
        certificate_pem=issued.certificate_pem,
        chain_pem=issued.chain_pem,
        fingerprint=issued.fingerprint,
        private_key=None if sealed is None else sealed.private_key,
        private_key_exported_at=None,
        kms_key_id=None if sealed is None else sealed.kms_key_id,
        issued_at=now,
        expires_at=issued.expires_at,
        renew_at=renewal_at(issued.not_before, issued.expires_at),
        faults=(),
        updated_at=now,
    )
    issue_rows.put_texts(tx, current.id, ())
    issue_rows.forget_issues(tx, current.account_id, current.id, now)
    issue_rows.add_issue(
        tx,
        current.account_id,
        current.id,
        issuer,
        issued.fingerprint,
        issued.certificate,
        issued.expires_at,
    )
    _save(tx, seen, current, changed, now)
    events.publish(tx, changed, RENEWED if is_renewal else ISSUED, now)


def note_refused(
    tx: Connection,
    seen: Certificate,
    problem: Problem,
    events: Events,
    now: int,
    *,
    is_last: bool,
) -> None:
    """Note that an authority has refused; a first certificate fails if it `is_last`."""
    current = _current(tx, seen)
    if current is None:
        return
    is_renewal = current.certificate_pem is not None
    is_news = is_last and not is_renewal
    faults = _with_domains(current.faults, problem.domains, now)
    if is_renewal:
        is_news = all(each.code != "RENEWAL_FAILED" for each in faults)
        faults = tuple(add_fault(faults, "RENEWAL_FAILED", problem.message, now))
    elif not problem.domains:
        faults = tuple(add_fault(faults, problem.code, problem.message, now))
    changed = current._replace(faults=faults, updated_at=now)
    if is_last and not is_renewal:
        changed = changed._replace(status="failed")
    issue_rows.put_texts(tx, current.id, ())
    _save(tx, seen, current, changed, now)
    if is_news:
        events.publish(tx, changed, RENEWAL_FAILED if is_renewal else FAILED, now)


def note_fault(tx: Connection, seen: Certificate, problem: Problem, now: int) -> None:
    """Note a fault of the whole certificate."""
    current = _current(tx, seen)
    if current is not None:
        faults = add_fault(current.faults, problem.code, problem.message, now)
        _save(tx, seen, current, current._replace(faults=faults), now)


def note_revoked(tx: Connection, seen: Certificate, events: Events, now: int) -> None:
    """Note that its authority has revoked a certificate."""
    current = _current(tx, seen)
    if current is None or current.status == "revoked":
        return
    changed = current._replace(
        status="revoked", renew_at=None, is_recheck_asked=False, faults=(), updated_at=now
    )
    _save(tx, seen, current, changed, now)
    events.publish(tx, changed, REVOKED, now)


def note_expired(
    tx: Connection, account_id: str, certificate_id: str, events: Events, now: int
) -> None:
    """Note that the time of an active certificate is over."""
    current = rows.lock_certificate(tx, account_id, certificate_id)
    if current is None or current.status_at(now) != "expired" or current.status == "expired":
        return
    changed = current._replace(status="expired", updated_at=now)
    rows.save_certificate(tx, changed)
    events.publish(tx, changed, EXPIRED, now)


def note_ending(
    tx: Connection, account_id: str, certificate_id: str, days: int, events: Events, now: int
) -> None:
    """Tell that an uploaded certificate ends within some days, once."""
    current = rows.lock_certificate(tx, account_id, certificate_id)
    if current is None or current.status_at(now) != "active":
        return
    if current.warned_days is not None and current.warned_days <= days:
        return
    changed = current._replace(warned_days=days)
    rows.save_certificate(tx, changed)
    events.publish(tx, changed, EXPIRING, now)


def look_again(tx: Connection, account_id: str, certificate_id: str, now: int) -> None:
    """Wake a new job at the end of one if there is more to do."""
    current = rows.find_certificate(tx, account_id, certificate_id)
    if current is not None and task_of(current, now) is not None:
        wake(tx, current, now)


def _current(tx: Connection, seen: Certificate) -> Certificate | None:
    return rows.lock_certificate(tx, seen.account_id, seen.id)


def _save(
    tx: Connection, seen: Certificate, current: Certificate, changed: Certificate, now: int
) -> None:
    """Store a certificate; let the job not wait if it was asked for more meanwhile."""
    rows.save_certificate(tx, changed)
    if (changed.is_recheck_asked and not seen.is_recheck_asked) or (
        current.revocation_asked_at != seen.revocation_asked_at
    ):
        wake(tx, changed, now)


def _with_domains(faults: Iterable[Fault], checks: Iterable[Seen], now: int) -> tuple[Fault, ...]:
    """Return faults with what was seen of some domains; a success clears, another code replaces."""
    found = list(faults)
    for each in checks:
        found = [old for old in found if old.subject != each.domain or old.code == each.code]
        if each.code is not None:
            found = add_fault(found, each.code, each.message, now, subject=each.domain)
    return tuple(found)
