"""The workflow of certificates: check, issue, renew and revoke.

If a process dies, an authority may issue a certificate twice; the key of the first one is then
lost. Revoking twice has no further effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, get_args

from msgspec import structs

from cloudcore.certificate import rows
from cloudcore.certificate.certificate import (
    FAILED,
    ISSUED,
    RENEWAL_FAILED,
    RENEWED,
    REVOKED,
    VALIDATION_SECONDS,
    Certificate,
    renewal_at,
)
from cloudcore.certificate.checks import Issued, check_issued
from cloudcore.certificate.issuer import (
    CA_REFUSED,
    AuthorityRefused,
    AuthorityUnreachable,
    Reason,
    RecordCheck,
    TxtRecords,
    check_records,
)
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.certificate.rows import ROWS
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import PlatformError
from cloudcore.jobs.faults import Fault, add_fault
from cloudcore.key_pairs import SLOW, key_pem, new_private_key, signing_request
from cloudcore.resources.workflow import Goal, Problem, Step, StepAttempt, StepDone, StepRetry, Work
from cloudcore.threads import SLOW_KEYS

_MOST_KEYS: Final = 4
"""Maximum certificates with slow keys that a process issues at once for one account; further ones
wait, so that other accounts get the slots of jobs."""


Outcome = StepDone[Certificate] | StepRetry[Certificate]


def goal(certificate: Certificate, now: int) -> Goal | None:
    """Return the next step for a certificate, or None if there is none; revocation comes first."""
    asked = int(certificate.is_recheck_asked)
    if certificate.revocation_asked_at is not None and certificate.status != "revoked":
        return Goal("revoke")
    if certificate.status == "pending_validation":
        return Goal("check", asked)
    if certificate.status == "issuing":
        return Goal("issue", asked)
    if certificate.is_recheck_asked:
        return Goal("check", asked)
    if certificate.renew_at is not None and certificate.renew_at <= now:
        return Goal("issue")
    return None


async def _check(found: Certificate, needs: CertificateNeeds, attempt: StepAttempt) -> Outcome:
    """Check the DNS records of the challenges.

    If all domains of a pending certificate are proved, it is issued next; if some are not proved
    after `VALIDATION_SECONDS`, it fails.
    """
    checks = await check_records(needs.resolver, found.challenges)
    is_last = _is_last(attempt, needs)
    verified = {each.domain for each in checks if each.code is None}

    def change(current: Certificate, now: int) -> Certificate:
        status = current.status
        if status == "pending_validation" and len(verified) == len(current.challenges):
            status = "issuing"
        elif status == "pending_validation" and is_last:
            status = "failed"
        return structs.replace(
            current,
            status=status,
            challenges=tuple(
                each.seen(now) if each.domain in verified else each for each in current.challenges
            ),
            faults=_with_domains(current.faults, checks, now),
            is_recheck_asked=current.is_recheck_asked and not found.is_recheck_asked,
        )

    def emit_event(tx: Connection, before: Certificate, after: Certificate) -> None:
        if after.status == "failed" and before.status != "failed":
            needs.events.emit(tx, after.account_id, FAILED, [after.event_data], after.updated_at)

    if found.status != "pending_validation" or is_last or not _wrong(checks):
        return StepDone(change=change, also=emit_event, keeps_faults=True)
    return StepRetry(change=change, also=emit_event)


async def _issue_in_turn(
    found: Certificate, needs: CertificateNeeds, attempt: StepAttempt
) -> Outcome:
    """Issue a certificate; return a retry if the account has too many slow keys under way."""
    if found.key_algorithm not in SLOW or found.csr is not None:
        return await _issue(found, needs, attempt)
    account_id, slow = found.account_id, needs.slow_keys
    if slow.under_way[account_id] >= _MOST_KEYS:
        return StepRetry(seconds=slow.seconds_to_postpone(account_id, needs.clock()))
    slow.under_way[account_id] += 1
    try:
        return await _issue(found, needs, attempt)
    finally:
        slow.under_way[account_id] -= 1
        if not slow.under_way[account_id]:
            del slow.under_way[account_id]
            slow.postponed_until.pop(account_id, None)


async def _issue(found: Certificate, needs: CertificateNeeds, attempt: StepAttempt) -> Outcome:
    """Request the certificate from the authority, for a new key or the owner's key."""
    issuer = needs.issuers.current
    try:
        await _check_rights(found, needs)
        # Seal the key first: if this failed after the issue, the certificate would be lost.
        try:
            request, sealed = await _request(found, needs)
        except PlatformError as error:
            return _not_now(found, needs, attempt, Problem("KEY_UNUSABLE", f"the KMS key: {error}"))
        chain = await issuer.issue(request, found.domains, TxtRecords(needs.database, found))
        issued = check_issued(chain, request, found.domains, needs.clock())
    except AuthorityRefused as refused:
        return _refused(found, needs, attempt, refused)
    except AuthorityUnreachable as error:
        return _not_now(found, needs, attempt, Problem("CA_UNREACHABLE", str(error)))
    return _issued(issuer.name, issued, sealed, needs)


def _issued(
    issuer: str, issued: Issued, sealed: tuple[str | None, bytes | None], needs: CertificateNeeds
) -> Outcome:
    """Return the outcome that replaces the current certificate and key with the issued ones.

    `sealed` is (KMS key id, new private key sealed under it); both are None if the owner has the
    key.
    """
    kms_key_id, private_key = sealed

    def change(current: Certificate, now: int) -> Certificate:
        return structs.replace(
            current,
            status="active",
            issuer=issuer,
            challenges=tuple(each.seen(now) for each in current.challenges),
            certificate_pem=issued.certificate_pem,
            chain_pem=issued.chain_pem,
            fingerprint=issued.fingerprint,
            private_key=private_key,
            private_key_exported_at=None,
            kms_key_id=kms_key_id,
            issued_at=now,
            expires_at=issued.expires_at,
            renew_at=renewal_at(issued.not_before, issued.expires_at),
        )

    def note(tx: Connection, before: Certificate, after: Certificate) -> None:
        place, now = (after.account_id, after.id), after.updated_at
        rows.put_texts(tx, after.id, ())
        rows.forget_issues(tx, *place, now)
        rows.add_issue(
            tx, *place, issuer, issued.fingerprint, issued.certificate, issued.expires_at
        )
        event = ISSUED if before.certificate_pem is None else RENEWED
        needs.events.emit(tx, after.account_id, event, [after.event_data], now)

    return StepDone(change=change, also=note)


async def _request(
    found: Certificate, needs: CertificateNeeds
) -> tuple[bytes, tuple[str | None, bytes | None]]:
    """Return (signing request in DER, (KMS key id, new sealed key)).

    Key id and key are None if the owner has made the request.

    Raise `PlatformError` if the account's KMS key cannot be used now.
    """
    if found.csr is not None:
        return found.csr, (None, None)
    if found.key_algorithm in SLOW:
        key = await SLOW_KEYS.run(found.account_id, new_private_key, found.key_algorithm)
    else:
        key = new_private_key(found.key_algorithm)
    sealed = await needs.private_keys.seal(found.account_id, found.id, key_pem(key))
    return signing_request(key, found.domains), sealed


async def _check_rights(found: Certificate, needs: CertificateNeeds) -> None:
    """Check that the account may still have a certificate for its domains.

    An authority that reads DNS does not check this: all accounts of the platform share one ACME
    account, so the authority may rely on a validation that it made for another account. This is
    checked at each attempt, since the result of an earlier step may be old if a worker died.

    Raise `AuthorityRefused` if a grant was removed, or a CNAME no longer points to the platform,
    `AuthorityUnreachable` if the DNS did not answer.
    """
    refused = []
    for each in found.challenges:
        if each.our_dns and not await needs.database.read(
            needs.proofs.is_hosted, found, each.domain
        ):
            message = f"the operator no longer grants your account {each.domain}"
            refused.append(RecordCheck(each.domain, "CA_REFUSED", message))
    if not refused:
        refused = _wrong(await check_records(needs.resolver, found.challenges))
    if not refused:
        return
    if all(each.code == "DNS_UNREACHABLE" for each in refused):
        raise AuthorityUnreachable(refused[0].message)
    raise AuthorityRefused(
        CA_REFUSED,
        "it is no longer proved that the account may have a certificate for "
        + ", ".join(each.domain for each in refused),
        [each for each in refused if each.code in get_args(Reason)],
    )


def _refused(
    found: Certificate, needs: CertificateNeeds, attempt: StepAttempt, refused: AuthorityRefused
) -> Outcome:
    """Return the outcome after an authority refused.

    Renewals are retried. A first issue is retried only while the authority does not see a record
    yet, for at most `VALIDATION_SECONDS`; otherwise it fails.
    """
    is_renewal = found.certificate_pem is not None
    codes = {each.code for each in refused.domains} or {refused.code}
    is_last = (CA_REFUSED in codes or _is_last(attempt, needs)) and not is_renewal
    faults = [] if refused.domains else [Problem(refused.code, refused.message)]
    if is_renewal:
        faults = [Problem("RENEWAL_FAILED", refused.message)]

    def change(current: Certificate, now: int) -> Certificate:
        status = "failed" if is_last else current.status
        with_domains = _with_domains(current.faults, refused.domains, now)
        return structs.replace(current, status=status, faults=with_domains)

    def note(tx: Connection, before: Certificate, after: Certificate) -> None:
        rows.put_texts(tx, after.id, ())
        if is_last:
            needs.events.emit(tx, after.account_id, FAILED, [after.event_data], after.updated_at)
        elif is_renewal and all(each.code != "RENEWAL_FAILED" for each in before.faults):
            needs.events.emit(
                tx, after.account_id, RENEWAL_FAILED, [after.event_data], after.updated_at
            )

    if is_last:
        return StepDone(change=change, also=note, faults=faults, keeps_faults=True)
    return StepRetry(change=change, also=note, faults=faults)


def _not_now(
    found: Certificate, needs: CertificateNeeds, attempt: StepAttempt, problem: Problem
) -> Outcome:
    """Return the retry of an attempt for which an authority, the DNS or a KMS key was unavailable.

    The fault is `problem` at a first issue, and `RENEWAL_FAILED` at a renewal.
    """
    if found.certificate_pem is None:
        return StepRetry(faults=[problem])
    return _refused(found, needs, attempt, AuthorityRefused(CA_REFUSED, problem.message))


async def _revoke(found: Certificate, needs: CertificateNeeds, _attempt: StepAttempt) -> Outcome:
    """Revoke, at their authorities, all unexpired certificates that were issued for a record."""
    place = found.account_id, found.id
    issues = await needs.database.read(rows.list_issues, *place, needs.clock())
    try:
        for name, certificate in issues:
            await needs.issuers.named(name).revoke(certificate, None)
    except (AuthorityRefused, AuthorityUnreachable) as error:
        return StepRetry(faults=[Problem("REVOCATION_FAILED", str(error))])

    def change(current: Certificate, _now: int) -> Certificate:
        return structs.replace(current, status="revoked", renew_at=None, is_recheck_asked=False)

    def emit_event(tx: Connection, _before: Certificate, after: Certificate) -> None:
        needs.events.emit(tx, after.account_id, REVOKED, [after.event_data], after.updated_at)

    return StepDone(change=change, also=emit_event)


def _is_last(attempt: StepAttempt, needs: CertificateNeeds) -> bool:
    return needs.clock() - attempt.since > VALIDATION_SECONDS * MICROSECONDS


def _wrong(checks: Sequence[RecordCheck]) -> list[RecordCheck]:
    return [each for each in checks if each.code is not None]


def _with_domains(
    faults: Iterable[Fault], checks: Iterable[RecordCheck], now: int
) -> tuple[Fault, ...]:
    """Return `faults` updated by checks of domains.

    A successful check removes the faults of its domain; a failed one replaces them, but keeps the
    fault with the same code.
    """
    found = list(faults)
    for each in checks:
        found = [old for old in found if old.subject != each.domain or old.code == each.code]
        if each.code is not None:
            found = add_fault(found, each.code, each.message, now, subject=each.domain)
    return tuple(found)


WORK: Final = Work(
    ROWS,
    goal=goal,
    steps={
        "check": Step(_check, 15, 3600),
        "issue": Step(_issue_in_turn, 60, 6 * 3600),
        "revoke": Step(_revoke, 10, 3600),
    },
    name="certificate.work",
)
