"""Request, recheck, revoke, export and delete certificates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, UnsetType, structs

from cloudcore.certificate import rows
from cloudcore.certificate.certificate import (
    KEY_EXPORTED,
    REVOKED,
    Certificate,
    KeySource,
    challenges_of,
)
from cloudcore.certificate.issuer import Proofs
from cloudcore.certificate.rows import ROWS
from cloudcore.certificate.settings import find_settings
from cloudcore.certificate.workflow import WORK
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, Conflict
from cloudcore.events import Events
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.web.bodies import FaultRecord
from cloudcore.wire import RFC3339, ResponseBody, rfc3339

_NO_ZONE: Final = "invalid"
"""Stands for the zone in installs without one: no name in it exists (RFC 2606)."""
_WITHOUT_CERTIFICATE: Final = frozenset({"pending_validation", "issuing", "failed"})


class ChallengeRecord(ResponseBody):
    """The proof for one domain: the domain's owner sets a CNAME once."""

    domain: str
    cname_record_name: str
    """The name of the record; `*.example.com` and `example.com` share one."""
    expected_cname: str
    """What the record must point to."""
    our_dns: bool
    """True if the platform hosts the domain, so that nobody needs to set the record."""
    verified: bool
    faults: Sequence[FaultRecord]
    verified_at: RFC3339 | UnsetType = UNSET
    """When the domain was first proved; absent before."""


def request_certificate(tx: Connection, new: Certificate, proofs: Proofs) -> Certificate:
    """Insert a certificate for an authority to issue, and start its workflow.

    Raises:
        AccessDenied: a domain cannot be proved, since the operator has not granted it to the
            account, and this install has no zone for challenges.
        Conflict, QuotaExceeded: see `Methods.create`.

    """
    hosted = [each for each in new.domains if proofs.is_hosted(tx, new, each)]
    if not proofs.zone:
        for domain in new.domains:
            if domain not in hosted:
                raise AccessDenied(
                    f"the operator has not granted your account {domain}, and this install has no"
                    " zone to prove it by DNS",
                    reason="domain_not_granted",
                    domain=domain,
                )
    challenges = challenges_of(new.id, new.domains, proofs.zone or _NO_ZONE, hosted, new.created_at)
    is_proved = all(each.verified_at is not None for each in challenges)
    made = structs.replace(
        new, challenges=challenges, status="issuing" if is_proved else "pending_validation"
    )
    CERTIFICATES.create(tx, made)
    WORK.wake(tx, made, new.created_at)
    return made


def _check_unused(tx: Connection, found: Certificate) -> None:
    """Raise `Conflict` if a certificate to delete is in use, or is being revoked."""
    users = rows.list_users(tx, found.id)
    if users:
        raise Conflict(
            "the certificate is in use; let what uses it have another one first",
            reason="in_use",
            used_by=users,
        )
    if found.revocation_asked_at is not None and found.status != "revoked":
        raise Conflict(
            "the certificate is being revoked; delete it when it is", reason="being_revoked"
        )


def as_of(found: Certificate, now: int) -> Certificate:
    """Return a certificate with its status at a moment; see `Certificate.status_at`."""
    return structs.replace(found, status=found.status_at(now))


def _faults(found: Certificate, subject: str = "") -> Sequence[FaultRecord]:
    return CERTIFICATES.bodies.faults([each for each in found.faults if each.subject == subject])


def _challenges(found: Certificate) -> Sequence[ChallengeRecord]:
    return [
        ChallengeRecord(
            domain=each.domain,
            cname_record_name=each.cname_record_name,
            expected_cname=each.expected_cname,
            our_dns=each.our_dns,
            verified=each.verified_at is not None,
            verified_at=UNSET if each.verified_at is None else rfc3339(each.verified_at),
            faults=_faults(found, each.domain),
        )
        for each in found.challenges
    ]


CERTIFICATES: Final = Methods(
    ROWS,
    as_of=as_of,
    before_delete=_check_unused,
    composites=(
        Composite(
            name="key_source",
            words="Who made the private key: `platform` (it is kept here), `owner` (a signing"
            " request came, and it is not here), or `uploaded` with the certificate.",
            shown=KeySource,
            show=lambda found: found.key_source,
        ),
        Composite(name="challenges", shown=Sequence[ChallengeRecord], show=_challenges),
        Composite(
            name="faults",
            words="Those of a domain are at its challenge.",
            shown=Sequence[FaultRecord],
            show=_faults,
        ),
    ),
    docs={
        "get": "Return a certificate, with what its domains still need.",
        "update": "Change the tags of a certificate.",
        "delete": "Delete a certificate and its key; it is not revoked. One in use stays (409).",
    },
    statuses={"delete": (409,)},
)


def revoke_certificate(
    tx: Connection, certificate: Certificate, now: int, events: Events
) -> Certificate:
    """Revoke an upload, or start revocation by the authority; return the certificate as it was.

    Raise `CertificateMissing` if it was deleted meanwhile, `Conflict` if it has not been issued. Do
    nothing if it is revoked or being revoked.
    """
    found = ROWS.lock(tx, certificate.account_id, certificate.id)
    if found.status == "revoked" or found.revocation_asked_at is not None:
        return found
    if found.status in _WITHOUT_CERTIFICATE:
        raise Conflict(
            f"the certificate is {found.status}: none was issued that could be revoked",
            reason="not_issued",
            status=found.status,
        )
    asked = structs.replace(found, revocation_asked_at=now, updated_at=now)
    if found.is_uploaded:
        revoked = structs.replace(asked, status="revoked")
        ROWS.save(tx, revoked)
        events.emit(tx, revoked.account_id, REVOKED, [revoked.event_data], now)
    else:
        ROWS.save(tx, asked)
        WORK.wake(tx, asked, now)
    return found


def recheck_challenges(tx: Connection, certificate: Certificate, now: int) -> Certificate:
    """Start another check of a certificate's challenges; a failed certificate is tried again.

    Raise `CertificateMissing` if it was deleted meanwhile, `Conflict` if it was uploaded, or is
    revoked.
    """
    found = ROWS.lock(tx, certificate.account_id, certificate.id)
    if found.is_uploaded:
        raise Conflict("an uploaded certificate has no challenges", reason="uploaded")
    if found.revocation_asked_at is not None:
        raise Conflict("the certificate is revoked, or about to be", reason="revoked")
    asked = structs.replace(found, is_recheck_asked=True, updated_at=now)
    if found.status == "failed":
        asked = structs.replace(asked, status="pending_validation", faults=())
    ROWS.save(tx, asked)
    WORK.wake(tx, asked, now)
    return asked


def check_exportable(tx: Connection, certificate: Certificate) -> None:
    """Check that the private key of a certificate may be exported.

    Raise `AccessDenied` if a setting of the account forbids it, `Conflict` if the certificate is
    revoked, has no key that was made here, or its key has already been exported.
    """
    if not find_settings(tx, certificate.account_id).private_key_export:
        raise AccessDenied(
            "a setting of your account forbids it: certificate-settings, private_key_export",
            reason="export_forbidden",
        )
    if certificate.key_source != "platform":
        raise Conflict(
            "the key was not made here: who made it has it", reason=certificate.key_source
        )
    if certificate.revocation_asked_at is not None:
        raise Conflict("the certificate is revoked, or about to be", reason="revoked")
    if certificate.private_key is None:
        raise Conflict(
            f"the certificate is {certificate.status}: it has no key yet",
            reason="not_issued",
            status=certificate.status,
        )
    if certificate.private_key_exported_at is not None:
        raise Conflict(
            "a copy of this key was given before; the next one is of the key that its renewal"
            " brings, or of another certificate",
            reason="exported",
            exported_at=rfc3339(certificate.private_key_exported_at),
        )


def note_export(tx: Connection, opened: Certificate, events: Events, now: int) -> Certificate:
    """Record that the private key is exported; return the certificate.

    `opened` is the certificate whose key the caller has opened. Raise `AccessDenied` or `Conflict`
    as `check_exportable` does, `Conflict` also if the key has changed since `opened` was read, and
    `CertificateMissing` if the certificate was deleted meanwhile.
    """
    found = ROWS.lock(tx, opened.account_id, opened.id)
    check_exportable(tx, found)
    if found.private_key != opened.private_key:
        raise Conflict("the certificate was renewed meanwhile; ask again", reason="renewed")
    exported = structs.replace(found, private_key_exported_at=now, updated_at=now)
    ROWS.save(tx, exported)
    events.emit(tx, exported.account_id, KEY_EXPORTED, [exported.event_data], now)
    return exported
