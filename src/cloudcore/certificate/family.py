"""The certificate family: certificates issued and renewed by an authority, or uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.certificate import certificate
from cloudcore.certificate.certificate import EVENTS
from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind

if TYPE_CHECKING:
    from cloudcore.certificate.needs import CertificateNeeds


CERTIFICATE: Final[Family[CertificateNeeds]] = Family(
    name="certificate",
    title="Certificates",
    runs="cloudcore.certificate.runtime:RUNTIME",
    paths=("/v1/certificate-authorities", "/v1/certificate-settings"),
    resources=(certificate.CERTIFICATE,),
    resource_kinds=(
        ResourceKind(
            crn="crn:certificate:<region>:<account>:certificate-settings/default",
            actions=(
                "certificate:GetCertificateSettings",
                "certificate:UpdateCertificateSettings",
            ),
        ),
    ),
    other_events=EVENTS,
    event_words={
        "certificate.renewal.failed": "A certificate could not be renewed",
        "certificate.certificate.failed": "A certificate could not be issued",
        "certificate.certificate.expiring": "An uploaded certificate ends soon",
        "certificate.certificate.expired": "A certificate has expired",
        "certificate.key.exported": "A private key was exported",
    },
    commands=(CommandGroup("use the platform's services", ("cloudcore.certificate.commands",)),),
)
