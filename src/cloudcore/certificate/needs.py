"""What certificates depend on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.acme.conversing import Directory
from cloudcore.certificate import rows
from cloudcore.certificate.domains import Grant, Grants, is_within
from cloudcore.certificate.embedded import EmbeddedAuthority
from cloudcore.certificate.issuer import AcmeIssuer, Issuers, Proofs, account_key
from cloudcore.certificate.keys import AccountKeys, PrivateKeys, SlowKeys
from cloudcore.certificate.port import Certificates
from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.events import EVENTS, Events
from cloudcore.outbound.dns_resolver import DnsResolver
from cloudcore.ports import KEYRING, Opening, Port


class CertificateSettings(NamedTuple):
    """What the operator says of certificates."""

    url: str
    """Where clients find the files of the install's own authority."""
    directory: Directory | None
    """ACME directory of the authority that issues; None for the install's own authority."""
    email: str
    """Where that authority writes to."""
    resolver: tuple[str, int] | None
    """Address of the DNS resolver; None for those of the machine."""
    grants: tuple[Grant, ...]
    zone: str
    """The platform's own, without a dot at its end; empty: none."""
    name_servers: tuple[str, ...]
    dns_address: tuple[str, int] | None
    """Where the DNS server of the zone listens: address and port; None for no DNS server."""


SETTINGS: Final[Port[CertificateSettings]] = Port("certificate.settings")
CERTIFICATES: Final[Port[Certificates]] = Port("certificate.certificates")
"""What serves TLS uses the certificates of accounts by it."""
ACCOUNT_KEYS: Final[Port[AccountKeys]] = Port("certificate.account_keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateNeeds:
    """The dependencies of the routes, the jobs and the timers of certificates."""

    database: Database
    clock: Clock
    private_keys: PrivateKeys
    embedded: EmbeddedAuthority
    issuers: Issuers
    resolver: DnsResolver
    proofs: Proofs
    events: Events
    slow_keys: SlowKeys = field(default_factory=SlowKeys)
    settings: CertificateSettings | None = None
    """The DNS server of the zone; None without a zone."""


async def open_needs(opening: Opening) -> CertificateNeeds:
    """Return the dependencies of one process; make the install's authority if there is none."""
    install, keyring = opening.install, await opening.get(KEYRING)
    settings = await opening.get(SETTINGS)
    embedded = EmbeddedAuthority(
        install.database, install.clock, install.new_id, keyring, settings.url
    )
    await embedded.prepare()
    issuers = Issuers(embedded)
    if settings.directory is not None:
        key = account_key(keyring, settings.directory.url)
        issuers = Issuers(AcmeIssuer(settings.directory, key, settings.email), (embedded,))
    return CertificateNeeds(
        database=install.database,
        clock=install.clock,
        private_keys=PrivateKeys(await opening.get(ACCOUNT_KEYS)),
        embedded=embedded,
        issuers=issuers,
        resolver=DnsResolver(settings.resolver),
        proofs=Proofs(Grants(settings.grants), settings.zone, issuers.current.checks_dns),
        events=await opening.get(EVENTS),
        settings=settings,
    )


async def open_certificates(opening: Opening) -> Certificates:
    """Return the certificates of accounts for what serves them."""
    private_keys = PrivateKeys(await opening.get(ACCOUNT_KEYS))
    return Certificates(opening.install.region, private_keys)


async def serve_zone(needs: CertificateNeeds, resources: AsyncExitStack) -> None:
    """Answer for the zone of the platform, if the operator wants that, until `resources` ends."""
    settings, database = needs.settings, needs.database
    if settings is None or settings.dns_address is None:
        return
    from cloudcore.certificate.zone_server import (  # noqa: PLC0415 - few have one
        Answerer,
        Zone,
        serving_zone,
    )

    granted = (each.domain for each in settings.grants)
    hosted = tuple(each for each in granted if is_within(each, [settings.zone]))
    zone = Zone(settings.zone, settings.name_servers, hosted)

    async def find_texts(name: str) -> Sequence[str]:
        return await database.read(rows.txt_values, name)

    server = serving_zone(Answerer(zone, find_texts), *settings.dns_address)
    await resources.enter_async_context(server)
