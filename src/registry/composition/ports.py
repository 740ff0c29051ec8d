"""Provide values for ports of families, from other families or from the settings.

Ports that a family fills itself are in its own ``needs.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from cloudcore.acme.client import Directory
from cloudcore.audit import log as audit
from cloudcore.billing import needs as billing
from cloudcore.billing.embedded_processor import EmbeddedProcessor
from cloudcore.billing.processor import PROCESSOR, Processor
from cloudcore.catalog import documents as catalog
from cloudcore.certificate import needs as certificate
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.compute import needs as compute
from cloudcore.compute.family import COMPUTE
from cloudcore.compute.images import IMAGES, Images
from cloudcore.compute.pools import PoolTargets
from cloudcore.databases import needs as databases
from cloudcore.email import needs as email
from cloudcore.iam.audit import AUDITOR
from cloudcore.identity import needs as identity
from cloudcore.identity.routes.organizations import membership_policy
from cloudcore.identity.services.accounts import PrepareAddition
from cloudcore.keyring import Keyring, load_keyring
from cloudcore.kms import needs as kms
from cloudcore.kms.providers import AwsMissing, AwsProvider, EmbeddedProvider, Providers
from cloudcore.loadbalancer import needs as loadbalancer
from cloudcore.loadbalancer.workflow import pool_changed
from cloudcore.metering.needs import METER, requests_counter
from cloudcore.metering.sku import SKUS
from cloudcore.network import needs as network
from cloudcore.nodes.node import NODE
from cloudcore.notifications import needs as notifications
from cloudcore.outbound.dns_resolver import DnsResolver
from cloudcore.outbound.mail_transfer import (
    DirectSender,
    PlatformMail,
    SmarthostSender,
    smarthost_mail,
)
from cloudcore.ports import KEYRING, Offer, Opening, Port, PortType, known, offer
from cloudcore.queue import needs as queue
from cloudcore.quotas import needs as quotas
from cloudcore.storage import needs as storage
from cloudcore.storage.bucket import BUCKET_BYTES
from cloudcore.storage.needs import BucketBytes
from cloudcore.web.context import (
    AUTHENTICATOR,
    CONTROL_SETTINGS,
    PLATFORM,
    ControlSettings,
    Platform,
)
from cloudcore.web.organization_scope import MEMBERSHIP_POLICY
from registry.buckets.store import BlobBucketBytes, BucketOrphans, KmsBucketKeys, Sealing
from registry.composition import needs as registry
from registry.composition.adapters import InstallAuthority, named_topic, topic_states
from registry.composition.drivers import (
    balancer_driver,
    compute_driver,
    database_driver,
    network_driver,
)
from registry.composition.families import FAMILIES
from registry.composition.family import REGISTRY
from registry.composition.stores import STORES
from registry.gc.orphans import is_right_database
from registry.quotas import UPLOADS
from registry.services.access.bearers import KEY_KINDS
from registry.services.access.decisions import repository_crn
from registry.services.access.logins import login_permission
from registry.settings.settings import Settings
from registry.settings.texts import AUTH, CONSOLE, PREFIX, SettingsError

if TYPE_CHECKING:
    from cloudcore.databases.archive.bucket_archive import BucketArchive

T = TypeVar("T")

_OTHER_EVENT_TYPES: Final = tuple(
    each for family in FAMILIES if family is not REGISTRY for each in family.events
)


def key_providers(settings: Settings, keyring: Keyring) -> Providers:
    """Return the configured providers that wrap keys; each unwraps only its own keys.

    Raise `SettingsError` if AWS KMS is configured, and its client is not installed.
    """
    embedded = EmbeddedProvider(keyring)
    if not settings.kms_aws_key:
        return Providers(embedded)
    try:
        aws = AwsProvider(settings.kms_aws_key, settings.kms_aws_endpoint)
    except AwsMissing as error:
        raise SettingsError(f"kms_aws_key: {error}") from None
    return Providers(aws, embedded) if settings.kms_provider == "aws" else Providers(embedded, aws)


def _certificate_settings(settings: Settings) -> certificate.CertificateSettings:
    chosen = settings.certificates
    url = chosen.certificate_acme_directory
    setting = f"{PREFIX}CERTIFICATE_ACME_DIRECTORY"
    return certificate.CertificateSettings(
        url=(settings.certificate_url or settings.url_of("certificate")).rstrip("/"),
        directory=Directory(url, setting, chosen.certificate_acme_roots) if url else None,
        email=chosen.certificate_acme_email,
        resolver=settings.resolver,
        grants=settings.granted_domains,
        zone=settings.zone,
        name_servers=chosen.name_servers,
        dns_address=chosen.dns_address,
    )


def _sending(settings: Settings) -> email.SendingTerms:
    """Return the sender of the accounts' mail (None if sending is off) and the allowed rate."""
    chosen, name = settings.email, settings.mail_host_name
    if chosen.email_sending == "off":
        return email.SendingTerms(None, chosen.email_rate)
    if chosen.email_sending == "smarthost":
        assert settings.smarthost is not None, "the settings were checked"
        sender = SmarthostSender(settings.smarthost, name)
        return email.SendingTerms(sender, chosen.email_rate)
    resolver = DnsResolver(settings.resolver)
    direct = DirectSender(resolver, chosen.allowed, name, chosen.email_port)
    return email.SendingTerms(direct, chosen.email_rate)


def _control_settings(settings: Settings) -> ControlSettings:
    return ControlSettings(
        region=settings.region,
        auth_url=settings.url_of(AUTH),
        console_url=settings.url_of(CONSOLE),
        container_host=settings.pull_host,
        trusted_proxies=settings.proxies,
        founders=settings.founders,
        container_password_seconds=settings.container_password_seconds,
        oidc_internal_origins=settings.internal_issuers,
    )


async def _platform(opening: Opening) -> Platform:
    return Platform(
        database=opening.install.database,
        clock=opening.install.clock,
        new_id=opening.install.new_id,
        keyring=await opening.get(KEYRING),
        authenticator=await opening.get(AUTHENTICATOR),
        auditor=await opening.get(AUDITOR),
        settings=await opening.get(CONTROL_SETTINGS),
        meter_request=requests_counter(await opening.get(METER), await opening.get(SKUS)),
    )


async def _providers(opening: Opening) -> Providers:
    return key_providers((await opening.get(STORES)).settings, await opening.get(KEYRING))


async def _addition(opening: Opening) -> PrepareAddition:
    return (await opening.get(kms.KEY_MAKER)).prepare_platform_key


async def _mail(opening: Opening) -> PlatformMail | None:
    """Return the sender of the platform's own mail, or None if none is configured."""
    settings = (await opening.get(STORES)).settings
    if settings.smarthost is not None:
        return smarthost_mail(settings.smarthost, settings.mail_host_name, settings.smtp_from)
    sending = await opening.get(email.SENDING)
    if sending.sender is None or not settings.smtp_from:
        return None
    return PlatformMail(sending.sender, settings.smtp_from)


async def _processor(opening: Opening) -> Processor:
    chosen = (await opening.get(STORES)).settings.billing
    if chosen.payment_processor == "embedded":
        return EmbeddedProcessor(opening.install.database, opening.install.clock)
    from cloudcore.billing.stripe_processor import (  # noqa: PLC0415 - few installs use it
        StripeMissing,
        StripeProcessor,
    )

    try:
        made = StripeProcessor(chosen.read_key(), chosen.stripe_endpoint)
    except (StripeMissing, ValueError) as error:
        raise SettingsError(f"payment_processor: {error}") from None
    opening.resources.callback(made.close)
    return made


async def _prices(opening: Opening) -> billing.Prices:
    """Return a function that reads the prices in the catalogue's file."""
    settings, skus = (await opening.get(STORES)).settings, await opening.get(SKUS)

    def prices() -> Sequence[billing.Price]:
        return catalog.load_catalog(settings.catalog, settings.region, settings.url, skus).prices

    return prices


async def _images(opening: Opening) -> Images:
    """Return this registry as the source of images for instances on this machine."""
    from registry.image_roots.images import RegistryImages  # noqa: PLC0415 - few machines run any
    from registry.image_roots.layer_store import LayerStore  # noqa: PLC0415

    settings, node = (await opening.get(STORES)).settings, await opening.get(NODE)
    first = settings.node.compute_first_uid if settings.node.compute_driver == "runc" else None
    return RegistryImages(
        await opening.get(registry.SERVICES),
        await opening.get(registry.BEARERS),
        # A layer is unpacked once for each first user id: its files belong to other ids.
        LayerStore(node.folder / "layers" / ("own" if first is None else f"{first}"), first),
        frozenset({settings.pull_host, *settings.hosts}),
    )


async def _bucket_bytes(opening: Opening) -> BucketBytes:
    blobs, store = (await opening.get(STORES)).store, await opening.get(registry.BUCKETS)
    ctx = await opening.get(registry.SERVICES)
    assert ctx.data_keys is not None
    sealing = Sealing(ctx.data_keys, ctx.seals, ctx.limits.inline_max_bytes)
    orphans = BucketOrphans(
        store, ctx.clock, ctx.delays.orphan, partial(is_right_database, ctx, blobs)
    )
    return BlobBucketBytes(store, sealing, orphans, ctx.new_id)


async def _pools(opening: Opening) -> PoolTargets:
    return PoolTargets(await opening.needs_of(COMPUTE))


async def _authority(opening: Opening) -> databases.ServerAuthority:
    embedded = (await opening.needs_of(CERTIFICATE)).embedded
    return InstallAuthority(opening.install.database, embedded)


async def _archive(opening: Opening) -> BucketArchive:
    from registry.composition.database_archive import open_archive  # noqa: PLC0415 - most processes ask for none

    return await open_archive(opening)


def _database_terms(settings: Settings) -> databases.DatabaseTerms:
    node = settings.node
    return databases.DatabaseTerms(
        node.database_address, *node.database_range, node.registered_networks
    )


def _from_settings(port: Port[T], read: Callable[[Settings], T]) -> Offer:
    """Offer a value for a port: the result of `read` on the settings."""

    async def make(opening: Opening) -> T:
        return read((await opening.get(STORES)).settings)

    return offer(port, make)


def _in_region(port: Port[T], make: Callable[[str], T]) -> Offer:
    """Offer a value for a port: the result of `make` for the region."""

    async def made(opening: Opening) -> T:
        return make(opening.install.region)

    return offer(port, made)


def _same_as(port: PortType[T]) -> Callable[[Opening], Awaitable[T]]:
    """Return a function that returns the value of another port."""
    return lambda opening: opening.get(port)


CROSS_FAMILY_OFFERS: Final = (
    offer(PLATFORM, _platform),
    offer(kms.PROVIDERS, _providers),
    offer(identity.PREPARE_ACCOUNT, _addition),
    _in_region(identity.LOGIN_PERMISSION, lambda region: partial(login_permission, region)),
    known(identity.KEY_KINDS, KEY_KINDS),
    _in_region(audit.NAMED_RESOURCE, lambda region: partial(repository_crn, region)),
    known(MEMBERSHIP_POLICY, membership_policy),
    _in_region(registry.FIND_TOPICS, lambda region: partial(topic_states, region)),
    _in_region(registry.RESOLVE_TOPIC, lambda region: partial(named_topic, region)),
    known(registry.OTHER_EVENT_TYPES, _OTHER_EVENT_TYPES),
    offer(notifications.QUEUES, _same_as(queue.QUEUES)),
    offer(notifications.MAIL, _mail),
    offer(email.MAIL, _same_as(notifications.MAIL)),
    offer(certificate.ACCOUNT_KEYS, _same_as(kms.PLATFORM_KEYS)),
    _from_settings(network.DRIVER, network_driver),
    _from_settings(loadbalancer.PROXIES, balancer_driver),
    offer(IMAGES, _images),
    _from_settings(compute.DRIVER, compute_driver),
    known(compute.POOL_CHANGED, pool_changed),
    offer(loadbalancer.POOLS, _pools),
    _from_settings(databases.SERVERS, database_driver),
    _from_settings(databases.TERMS, _database_terms),
    offer(databases.AUTHORITY, _authority),
    offer(databases.ARCHIVE, _archive),
    _from_settings(compute.DISK_MB, lambda settings: settings.node.compute_disk_mb),
    _from_settings(network.IPV6_RANGES, lambda settings: settings.node.ipv6_ranges),
    offer(storage.BYTES, _bucket_bytes),
    offer(PROCESSOR, _processor),
    offer(billing.PRICES, _prices),
    _in_region(storage.KEYS, KmsBucketKeys),
    _from_settings(KEYRING, lambda settings: load_keyring(settings.root_key)),
    _from_settings(CONTROL_SETTINGS, _control_settings),
    _from_settings(audit.KEPT_SECONDS, lambda settings: settings.audit_seconds),
    _from_settings(catalog.FILE, lambda settings: settings.catalog),
    _from_settings(
        email.RETURN_MAIL,
        lambda settings: email.ReturnMail(
            settings.email.bounce_domain, settings.email.bounce_address
        ),
    ),
    _from_settings(email.DEDICATED_IPS, lambda settings: settings.email.dedicated_ips),
    _from_settings(email.SENDING, _sending),
    _from_settings(loadbalancer.VIPS, lambda settings: settings.node.vips),
    _from_settings(loadbalancer.TARGETS, lambda settings: settings.node.targets),
    _from_settings(email.RESOLVER, lambda settings: settings.resolver),
    _from_settings(certificate.SETTINGS, _certificate_settings),
    _from_settings(notifications.WEBHOOKS, lambda settings: settings.allowed_webhooks),
    _from_settings(quotas.OPERATORS, lambda settings: settings.operator_handles),
    _from_settings(
        quotas.QUOTA_DEFAULTS,
        lambda settings: {
            BUCKET_BYTES.name: settings.limits.max_bucket_bytes,
            UPLOADS.name: settings.limits.max_open_uploads,
        },
    ),
    _from_settings(storage.ACCOUNT_BYTES, lambda settings: settings.limits.max_bucket_bytes),
)
