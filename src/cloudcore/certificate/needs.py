"""The dependencies of certificates, and the port through which TLS servers use them.

`Certificates` resolves a reference, keeps a certificate from deletion while it is in use, and opens
its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cloudcore.acme.client import Directory
from cloudcore.certificate import rows
from cloudcore.certificate.certificate import Certificate
from cloudcore.certificate.domains import DomainGrant, DomainGrants, is_within
from cloudcore.certificate.embedded import EmbeddedAuthority
from cloudcore.certificate.issuer import AcmeIssuer, Issuers, Proofs, account_key
from cloudcore.certificate.keys import AccountKeys, PrivateKeys, SlowKeys
from cloudcore.certificate.rows import ROWS
from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict
from cloudcore.events import EVENTS, Events
from cloudcore.outbound.dns_resolver import DnsResolver
from cloudcore.ports import KEYRING, Opening, Port
from cloudcore.resource_references import Authorize


class Servable(NamedTuple):
    """A certificate with its chain and key, for a server."""

    fingerprint: str
    """It differs after each renewal."""
    expires_at: int
    full_chain_pem: str
    """The certificate, and behind it its issuers without the root."""
    private_key_pem: bytes
    """A secret."""

    def __repr__(self) -> str:
        """Omit the key."""
        return f"Servable({self.fingerprint})"


class Certificates:
    """The certificates of this install."""

    def __init__(self, region: str, private_keys: PrivateKeys) -> None:
        self._region = region
        self._private_keys = private_keys

    def resolve(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        authorize: Authorize,
        *,
        field: str = "certificate",
    ) -> Certificate:
        """Return the certificate that a name, an id or a CRN refers to.

        Raises:
            InvalidInput: it is no reference of this account and region; `field` is named.
            AccessDenied: `authorize` refused.
            CertificateMissing: there is no such certificate.

        """
        return ROWS.resolve(tx, account_id, self._region, field, reference, authorize)

    def hold(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        used_by: str,
        *,
        field: str = "certificate",
    ) -> Certificate:
        """Hold the certificate that a name, an id or a CRN refers to, so that it cannot be deleted.

        Return the certificate. `used_by` is its user's CRN, or a word for a part of the platform.

        Raises:
            InvalidInput: it is not a reference of this account and region; `field` is named.
            CertificateMissing: there is no such certificate.
            Conflict: it is revoked, or its owner made the key, so that it is not here.

        """
        found = ROWS.resolve(tx, account_id, self._region, field, reference, None)
        held = ROWS.lock(tx, account_id, found.id)
        if held.revocation_asked_at is not None:
            raise Conflict("the certificate is revoked, or about to be", reason="revoked")
        if held.key_source == "owner":
            raise Conflict(
                "the certificate cannot be served here: its key is with its owner",
                reason="key_elsewhere",
            )
        rows.add_user(tx, held.id, used_by)
        return held

    def release(self, tx: Connection, certificate_id: str, used_by: str) -> None:
        """Release a certificate; do nothing if `used_by` does not hold it."""
        rows.remove_user(tx, certificate_id, used_by)

    def fingerprint(self, tx: Connection, account_id: str, certificate_id: str) -> str | None:
        """Return a value that changes whenever `open` would return another certificate, or None."""
        found = ROWS.find(tx, account_id, certificate_id)
        return None if found is None else found.fingerprint

    async def open(
        self, database: Database, account_id: str, certificate_id: str
    ) -> Servable | None:
        """Return the certificate to serve, or None if it is not issued yet, or was deleted.

        An expired or revoked one is returned too: that is better than serving none.

        Raise `PlatformError` if the account's KMS key cannot be used now; the caller then continues
        to serve the certificate it has.
        """
        found = await database.read(ROWS.find, account_id, certificate_id)
        if found is None or found.certificate_pem is None or found.private_key is None:
            return None
        assert found.fingerprint is not None
        assert found.expires_at is not None
        return Servable(
            found.fingerprint,
            found.expires_at,
            found.certificate_pem + (found.chain_pem or ""),
            await self._private_keys.open(found),
        )


class CertificateSettings(NamedTuple):
    """The operator's settings of certificates."""

    url: str
    """Where clients find the files of the install's own authority."""
    directory: Directory | None
    """ACME directory of the authority that issues; None for the install's own authority."""
    email: str
    """Where that authority writes to."""
    resolver: tuple[str, int] | None
    """Address of the DNS resolver; None for those of the machine."""
    grants: tuple[DomainGrant, ...]
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
    """Return this process's dependencies; create the install's own authority if there is none."""
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
        proofs=Proofs(DomainGrants(settings.grants), settings.zone, issuers.current.checks_dns),
        events=await opening.get(EVENTS),
        settings=settings,
    )


async def open_certificates(opening: Opening) -> Certificates:
    """Return the certificates of accounts, for TLS servers."""
    private_keys = PrivateKeys(await opening.get(ACCOUNT_KEYS))
    return Certificates(opening.install.region, private_keys)


async def serve_zone(needs: CertificateNeeds, resources: AsyncExitStack) -> None:
    """Serve the platform's DNS zone until `resources` closes, if the operator has configured it."""
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
