"""The dependencies of certificates, and the port through which TLS servers use them.

That port is `Certificates`: it resolves references, protects certificates in use from deletion, and
opens their keys.
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
    """SHA-256 of the certificate, in hex; it changes with each renewal."""
    expires_at: int
    full_chain_pem: str
    """The certificate, followed by its issuers without the root."""
    private_key_pem: bytes
    """The private key in PEM; a secret."""

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
            InvalidInput: `reference` is malformed, or of another account or region; the error
                names `field`.
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
        """Record that `used_by` uses a certificate, so that it cannot be deleted; return it.

        `reference` is a name, an id or a CRN. `used_by` is the CRN of the resource that uses the
        certificate, or a word for a part of the platform.

        Raises:
            InvalidInput: `reference` is malformed, or of another account or region; the error
                names `field`.
            CertificateMissing: there is no such certificate.
            Conflict: it is revoked, or its key is not stored here, since the owner made it.

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
        """Undo `hold`; do nothing if `used_by` does not hold the certificate."""
        rows.remove_user(tx, certificate_id, used_by)

    def fingerprint(self, tx: Connection, account_id: str, certificate_id: str) -> str | None:
        """Return a value that changes whenever `open` would return another certificate.

        Return None if the certificate is not issued yet, or was deleted.
        """
        found = ROWS.find(tx, account_id, certificate_id)
        return None if found is None else found.fingerprint

    async def open(
        self, database: Database, account_id: str, certificate_id: str
    ) -> Servable | None:
        """Return the certificate to serve, or None if it is not issued yet, or was deleted.

        Expired and revoked certificates are returned too: serving them is better than serving none.

        Raise `PlatformError` if the account's KMS key cannot be used now; the caller should then
        continue to serve the certificate that it has.
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
    """Base URL of the files of the install's own authority."""
    directory: Directory | None
    """ACME directory of the authority that issues; None for the install's own authority."""
    email: str
    """The e-mail address for messages from the ACME authority."""
    resolver: tuple[str, int] | None
    """Address and port of the DNS resolver; None for the resolvers of the machine."""
    grants: tuple[DomainGrant, ...]
    zone: str
    """The platform's DNS zone, without a final dot; empty if it has none."""
    name_servers: tuple[str, ...]
    dns_address: tuple[str, int] | None
    """Address and port on which the zone's DNS server listens; None for no DNS server."""


SETTINGS: Final[Port[CertificateSettings]] = Port("certificate.settings")
CERTIFICATES: Final[Port[Certificates]] = Port("certificate.certificates")
"""The port through which TLS servers use the certificates of accounts."""
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
    """The settings, from which `serve_zone` starts the DNS server; None for no DNS server."""


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
    """Return the port through which TLS servers use certificates."""
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
