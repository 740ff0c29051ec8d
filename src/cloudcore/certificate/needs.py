"""What certificates depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.certificate.embedded import EmbeddedAuthority
    from cloudcore.certificate.issuer import Issuers
    from cloudcore.certificate.ports import Events
    from cloudcore.certificate.resolving import Resolver
    from cloudcore.certificate.sealing import PrivateKeys
    from cloudcore.certificate.services import Proofs
    from cloudcore.clock import Clock
    from cloudcore.db.base import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateNeeds:
    """The dependencies of the routes, the jobs and the timers of certificates."""

    database: Database
    clock: Clock
    private_keys: PrivateKeys
    embedded: EmbeddedAuthority
    issuers: Issuers
    resolver: Resolver
    proofs: Proofs
    events: Events
