"""Part of the composition root: the parts of certificates, and whom their events are told to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from cloudcore.acme.conversing import Directory
from cloudcore.certificate import issue_rows
from cloudcore.certificate.acme_issuer import AcmeIssuer, account_key
from cloudcore.certificate.embedded import EmbeddedAuthority
from cloudcore.certificate.grants import Grants, is_within
from cloudcore.certificate.issuer import Issuers
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.certificate.resolving import DnsResolver
from cloudcore.certificate.rows import Certificate
from cloudcore.certificate.sealing import PrivateKeys
from cloudcore.certificate.services import Proofs
from cloudcore.db.base import Connection, Database
from cloudcore.events import Events
from cloudcore.keyring import Keyring
from cloudcore.kms.rows import find_platform_key
from cloudcore.kms.rules import KeyMissing
from cloudcore.kms.vault import Vault
from cloudcore.wire import rfc3339
from registry.process import ServingProcess
from registry.services.context import ServiceContext
from registry.setting_texts import PREFIX
from registry.settings import Settings


class PlatformKeys:
    """Seals under the platform keys of accounts (`AccountKeys`)."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    async def seal(self, account_id: str, secret: bytes, context: str) -> tuple[str, bytes]:
        """Return the id of the account's platform key, and a secret sealed under it."""
        key = await self._database.read(find_platform_key, account_id)
        if key is None:
            raise KeyMissing
        return key.id, await self._vault.wrap(account_id, key.id, secret, context.encode())

    async def open(self, account_id: str, kms_key_id: str, sealed: bytes, context: str) -> bytes:
        """Return a secret that was sealed for the same `context`."""
        return await self._vault.unwrap(account_id, kms_key_id, sealed, context.encode())


class CertificateEvents:
    """Tells of certificates as other families tell of theirs."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def publish(self, tx: Connection, certificate: Certificate, event_type: str, now: int) -> None:
        """Publish an event to the topics of the rules that name it, when `tx` commits."""
        self._events.tell(tx, certificate.account_id, event_type, [_data(certificate)], now)


async def open_certificates(
    settings: Settings, ctx: ServiceContext, keyring: Keyring, vault: Vault, events: Events
) -> CertificateNeeds:
    """Return the parts of certificates; make the authority of the install if there is none."""
    url = (settings.certificate_url or settings.url).rstrip("/")
    embedded = EmbeddedAuthority(ctx.database, ctx.clock, ctx.new_id, keyring, url)
    await embedded.prepare()
    acme = _acme_issuer(settings, keyring)
    issuers = Issuers(embedded) if acme is None else Issuers(acme, (embedded,))
    return CertificateNeeds(
        database=ctx.database,
        clock=ctx.clock,
        private_keys=PrivateKeys(keyring, PlatformKeys(ctx.database, vault)),
        embedded=embedded,
        issuers=issuers,
        resolver=DnsResolver(settings.resolver),
        proofs=Proofs(Grants(settings.granted_domains), settings.zone, issuers.current.checks_dns),
        events=CertificateEvents(events),
    )


def _acme_issuer(settings: Settings, keyring: Keyring) -> AcmeIssuer | None:
    """Return the authority that the operator has named, or None."""
    chosen = settings.certificates
    url = chosen.certificate_acme_directory
    if not url:
        return None
    setting = f"{PREFIX}CERTIFICATE_ACME_DIRECTORY"
    directory = Directory(url, setting, chosen.certificate_acme_roots)
    return AcmeIssuer(directory, account_key(keyring, url), chosen.certificate_acme_email)


async def serve_zone(process: ServingProcess, resources: AsyncExitStack) -> None:
    """Answer for the zone of the platform, if the operator wants that, until `resources` ends."""
    settings = process.settings
    address = settings.certificates.dns_address
    if address is None:
        return
    from cloudcore.certificate.zone_answers import Answerer, Zone  # noqa: PLC0415 - few have one
    from cloudcore.certificate.zone_server import serving_zone  # noqa: PLC0415

    granted = tuple(each.domain for each in settings.granted_domains)
    hosted = tuple(each for each in granted if is_within(each, [settings.zone]))
    zone = Zone(settings.zone, settings.certificates.name_servers, hosted)
    database = process.ctx.database

    async def find_texts(name: str) -> Sequence[str]:
        return await database.read(issue_rows.txt_values, name)

    await resources.enter_async_context(serving_zone(Answerer(zone, find_texts), *address))


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
