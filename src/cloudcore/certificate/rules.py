"""Words and numbers of certificates."""

from __future__ import annotations

from typing import Final, Literal

from cloudcore.errors import NotFound

Status = Literal["pending_validation", "issuing", "active", "expired", "revoked", "failed"]
Source = Literal["acme", "uploaded"]
KeyAlgorithm = Literal["ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096"]
KeySource = Literal["platform", "owner", "uploaded"]
FaultCode = Literal[
    "CNAME_MISSING",
    "CNAME_MISMATCH",
    "CA_REFUSED",
    "CA_UNREACHABLE",
    "DNS_UNREACHABLE",
    "RENEWAL_FAILED",
    "REVOCATION_FAILED",
    "KEY_UNUSABLE",
]

VALIDATION_SECONDS: Final = 7 * 24 * 3600
"""A certificate fails whose domains are not proved after these."""
ISSUED: Final = "certificate.certificate.issued"
RENEWED: Final = "certificate.certificate.renewed"
REVOKED: Final = "certificate.certificate.revoked"
EXPIRED: Final = "certificate.certificate.expired"
EXPIRING: Final = "certificate.certificate.expiring"
"""Of one that is not renewed."""
FAILED: Final = "certificate.certificate.failed"
RENEWAL_FAILED: Final = "certificate.renewal.failed"
KEY_EXPORTED: Final = "certificate.key.exported"
EVENTS: Final = (
    EXPIRED,
    EXPIRING,
    FAILED,
    ISSUED,
    RENEWED,
    REVOKED,
    KEY_EXPORTED,
    RENEWAL_FAILED,
)
WARNED_DAYS: Final = (30, 7)
"""How long before the end of an uploaded certificate its owner is told."""
WARNINGS: Final = frozenset({"CA_UNREACHABLE", "DNS_UNREACHABLE"})
"""Faults that may go by themselves."""


class CertificateMissing(NotFound):
    """The certificate does not exist, or is another account's."""

    def __init__(self) -> None:
        super().__init__("there is no such certificate", reason="certificate_not_found")
