"""What topics are told of certificates."""

from __future__ import annotations

from cloudcore.certificate.certificate import Certificate
from cloudcore.db.base import Connection
from cloudcore.events import Events
from cloudcore.wire import rfc3339


class CertificateEvents:
    """Tells of certificates as other families tell of theirs."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def publish(self, tx: Connection, certificate: Certificate, event_type: str, now: int) -> None:
        """Publish an event to the topics of the rules that name it, when `tx` commits."""
        self._events.tell(tx, certificate.account_id, event_type, [_data(certificate)], now)


def _data(certificate: Certificate) -> dict[str, object]:
    """Return what subscribers are told of a certificate."""
    expires_at = certificate.expires_at
    return {
        "certificate": {
            "id": certificate.id,
            "crn": certificate.crn,
            "name": certificate.name,
        },
        "domains": list(certificate.domains),
        "status": certificate.status,
        "fingerprint": certificate.fingerprint,
        "expires_at": None if expires_at is None else rfc3339(expires_at),
        "faults": [
            {"code": each.code, "message": each.message, "domain": each.subject or None}
            for each in certificate.faults
        ],
    }
