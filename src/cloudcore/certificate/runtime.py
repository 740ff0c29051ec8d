"""The certificate family in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.certificate import chores, routes, services, settings
from cloudcore.certificate.needs import (
    CERTIFICATES,
    CertificateNeeds,
    open_certificates,
    open_needs,
    serve_zone,
)
from cloudcore.certificate.rows import ROWS
from cloudcore.certificate.workflow import WORK
from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.ports import offer
from cloudcore.resources.routes import handlers_of

RUNTIME: Final[Runtime[CertificateNeeds]] = Runtime(
    open=open_needs,
    offers=(offer(CERTIFICATES, open_certificates),),
    begin=serve_zone,
    routes=handlers_of(services.CERTIFICATES, routes, settings),
    job_kinds=lambda needs: (WORK.job_kind(needs),),
    schedule=scheduled(
        ("certificate.renewals", chores.EVERY_SECONDS, chores.renew_due),
        ("certificate.expired", chores.EVERY_SECONDS, chores.record_expiries),
        (
            "certificate.revocation_lists",
            chores.LISTS_SECONDS,
            lambda needs: needs.embedded.renew_lists(),
        ),
    ),
    uses=(ROWS.counted,),
)
