"""Part of the composition root: ``entrepot serve``, with identity, both planes and the console."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache, partial
from typing import Final, cast

from cloudcore.audit import log as audit_log
from cloudcore.audit.needs import AuditNeeds
from cloudcore.clock import uuid7
from cloudcore.db.commit_mark import CommitMark
from cloudcore.events import Events
from cloudcore.family import Family, vocabulary
from cloudcore.iam.vocabulary import Vocabulary
from cloudcore.identity import last_uses
from cloudcore.identity.authentication import BearerAuthenticator
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.oidc.discovery import Discovery
from cloudcore.identity.oidc.provider_client import ProviderClient
from cloudcore.identity.permissions import Permissions
from cloudcore.identity.routes.organizations import membership_policy
from cloudcore.identity.signing_keys import SigningKeys
from cloudcore.identity.tokens import AccessTokens
from cloudcore.jobs.running import last_turn, repeated
from cloudcore.keyring import Keyring, load_keyring
from cloudcore.kms.aws import AwsMissing, AwsProvider
from cloudcore.kms.making import KeyMaker
from cloudcore.kms.needs import KmsNeeds
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.vault import Vault
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.ports import Mail
from cloudcore.outbound.http_client import HttpClient
from cloudcore.queue.needs import QueueNeeds
from cloudcore.queue.port import Queues
from cloudcore.serving.dispatch import Application, Dispatcher
from cloudcore.storage.needs import StorageNeeds
from cloudcore.web.app import ControlPlane, Routes, family_routes
from cloudcore.web.context import ControlSettings, Platform
from cloudcore.web.health import HEALTH, Readiness, health_routes
from cloudcore.web.run_once import RunOnce
from registry.blobstore.base import BlobStore
from registry.blobstore.filesystem import FilesystemStore
from registry.blobstore.opening import open_bucket_store
from registry.browsers.cors import CrossOriginReads
from registry.bucket_bytes import Sealing, StoreOfBuckets
from registry.bucket_keys import KeysOfBuckets
from registry.bucket_orphans import BucketOrphans
from registry.certificates import open_certificates, serve_zone
from registry.console.app import Console
from registry.console.page_request import ConsoleSettings
from registry.distribution.app import DataPlane
from registry.distribution.challenge import Challenges
from registry.distribution.mirrors import Mirrors
from registry.distribution.token import TokenEndpoint
from registry.distribution.token_access import TokenAccess
from registry.families import FAMILIES
from registry.family import REGISTRY
from registry.gc.orphans.scan import may_judge
from registry.keys import DataKeys
from registry.main import Edition, PlaneApplications, Registry, application
from registry.process import Process, ServingProcess
from registry.services.access import repository_crn
from registry.services.bearers import KEY_KINDS, BearerSigner
from registry.services.blobs import upload_ids
from registry.services.blobs.upload_ids import UploadIds
from registry.services.context import ServiceContext
from registry.services.events import topics_asking
from registry.services.logins import login_permission
from registry.services.pull_through.credentials import credential_of
from registry.services.pull_through.upstreams import open_upstreams
from registry.services.tokens import BearerTokens
from registry.setting_texts import SettingsError
from registry.settings import Settings
from registry.topics import topic_states

_KEY_REFRESH_SECONDS: Final = 60


async def _surround(process: Process, resources: AsyncExitStack) -> ServingProcess:
    """Make the parts for sign-in, with the root key of the installation."""
    return await surround(process, resources, load_keyring(process.settings.root_key))


async def surround(process: Process, resources: AsyncExitStack, keyring: Keyring) -> ServingProcess:
    """Make the parts for sign-in; `resources` ends what they repeat."""
    settings, ctx = process.settings, process.ctx
    keys = SigningKeys(ctx.database, keyring, ctx.clock, KEY_KINDS)
    await keys.refresh()
    await resources.enter_async_context(repeated(_KEY_REFRESH_SECONDS, keys.refresh))
    tokens = AccessTokens(keys, settings.url, ctx.clock)
    permissions = Permissions(ctx.database)
    uses = last_uses.LastUses(ctx.database, ctx.clock)
    resources.push_async_callback(last_turn, uses.flush, "uses of keys and roles")
    await resources.enter_async_context(repeated(last_uses.FLUSH_SECONDS, uses.flush))
    authenticator = BearerAuthenticator(ctx.database, tokens, permissions, uses, ctx.clock)
    signer = BearerSigner(keys, settings.url, settings.pull_host, ctx.clock, uuid7)
    events = Events(topics_asking)
    auditor = audit_log.AuditLog(
        ctx.database, ctx.new_id, partial(events.tell_change, told_changes())
    )
    resources.push_async_callback(last_turn, auditor.flush, "events of the audit log")
    await resources.enter_async_context(repeated(audit_log.FLUSH_SECONDS, auditor.flush))
    platform = Platform(
        database=ctx.database,
        clock=ctx.clock,
        new_id=ctx.new_id,
        keyring=keyring,
        authenticator=authenticator,
        auditor=auditor,
        settings=ControlSettings(
            region=settings.region,
            auth_url=settings.url,
            trusted_proxies=settings.proxies,
            founders=settings.founders,
            container_password_seconds=settings.container_password_seconds,
            oidc_internal_origins=settings.internal_issuers,
        ),
    )
    provider_client = ProviderClient(settings.internal_issuers)
    providers = key_providers(settings, keyring)
    maker = KeyMaker(providers, settings.region, ctx.new_id)
    await maker.add_missing_platform_keys(ctx.database, ctx.clock())
    vault = Vault(ctx.database, providers, ctx.clock)
    upstreams = open_upstreams(ctx.database, ctx.clock, settings.allowed_upstreams)
    ctx = replace(
        ctx,
        upstream=await resources.enter_async_context(upstreams),
        cache_credential=partial(credential_of, keyring),
        data_keys=DataKeys(vault),
        seals=settings.seals,
        upload_ids=UploadIds(keyring.derive(upload_ids.CONTEXT)),
        find_topics=partial(topic_states, settings.region),
        other_event_types=tuple(
            each for family in FAMILIES if family is not REGISTRY for each in family.events
        ),
    )
    # A POST goes over a connection of its own; kept ones would only use up descriptors.
    webhooks = HttpClient(settings.allowed_webhooks, max_idle=0)
    resources.callback(webhooks.close)
    buckets = await resources.enter_async_context(open_bucket_store(settings))
    return ServingProcess(
        settings=settings,
        ctx=ctx,
        store=process.store,
        buckets=buckets,
        platform=platform,
        identity=IdentityNeeds(
            tokens,
            keys,
            uses,
            settings.url,
            provider_client,
            Discovery(provider_client),
            maker.prepare_platform_key,
            partial(login_permission, settings.region),
        ),
        audit=AuditNeeds(
            database=ctx.database,
            clock=ctx.clock,
            kept_seconds=settings.audit_seconds,
            named_resource=partial(repository_crn, settings.region),
            membership_policy=membership_policy,
        ),
        kms=KmsNeeds(
            database=ctx.database,
            clock=ctx.clock,
            new_id=ctx.new_id,
            maker=maker,
            vault=vault,
            auditor=auditor,
        ),
        notifications=NotificationNeeds(
            database=ctx.database,
            clock=ctx.clock,
            new_id=ctx.new_id,
            keyring=keyring,
            region=settings.region,
            url=settings.url,
            client=webhooks,
            queues=Queues(settings.region, ctx.clock),
            mail=_mail(settings, resources),
        ),
        queue=QueueNeeds.of(ctx.database, ctx.clock),
        certificates=await open_certificates(settings, ctx, keyring, vault, events),
        storage=_storage(settings, ctx, process.store, buckets, events),
        bearers=BearerTokens(ctx.database, ctx.clock, signer, authenticator, settings.region),
    )


def _storage(
    settings: Settings,
    ctx: ServiceContext,
    blobs: BlobStore,
    store: FilesystemStore,
    events: Events,
) -> StorageNeeds:
    """Return the dependencies of buckets, whose bytes are in `store`."""
    assert ctx.data_keys is not None
    sealing = Sealing(ctx.data_keys, ctx.seals, ctx.limits.inline_max_bytes)
    orphans = BucketOrphans(store, ctx.clock, ctx.delays.orphan, partial(may_judge, ctx, blobs))
    return StorageNeeds(
        database=ctx.database,
        clock=ctx.clock,
        new_id=ctx.new_id,
        bytes=StoreOfBuckets(store, sealing, orphans, ctx.new_id),
        keys=KeysOfBuckets(settings.region),
        events=events,
        account_bytes=ctx.limits.max_bucket_bytes,
    )


def told_changes() -> dict[str, str]:
    """Return the types of the events of all families by the actions that the audit log records."""
    return {action: told for family in FAMILIES for action, told in family.told_changes.items()}


def _mail(settings: Settings, resources: AsyncExitStack) -> Mail | None:
    """Return what sends mail, by the settings; None if nothing does."""
    if settings.smarthost is None:
        return None
    from cloudcore.outbound.smtp import SmtpClient  # noqa: PLC0415 - few installs send mail
    from registry.mail import SmarthostMail  # noqa: PLC0415

    client = SmtpClient(settings.smarthost)
    resources.callback(client.close)
    return SmarthostMail(client, settings.smtp_from)


def key_providers(settings: Settings, keyring: Keyring) -> Providers:
    """Return who wraps the material of keys, by the settings; both open what they have wrapped.

    Raises:
        SettingsError: AWS KMS is set, and its client is not installed.

    """
    embedded = EmbeddedProvider(keyring)
    if not settings.kms_aws_key:
        return Providers(embedded)
    try:
        aws = AwsProvider(settings.kms_aws_key, settings.kms_aws_endpoint)
    except AwsMissing as error:
        raise SettingsError(f"kms_aws_key: {error}") from None
    return Providers(aws, embedded) if settings.kms_provider == "aws" else Providers(embedded, aws)


@cache
def _routes(families: tuple[Family[ServingProcess], ...]) -> Routes:
    """Return the routes of `families`, made once per process."""
    shapes = [family.error_shapes() for family in families]
    return Routes(
        [health_routes(), *(family_routes(family.name, family.routes()) for family in families)],
        {prefix: each[prefix] for each in shapes for prefix in each},
    )


@cache
def _vocabulary(families: tuple[Family[ServingProcess], ...]) -> Vocabulary:
    """Return what policies can name, made once per process."""
    return vocabulary(families)


async def _make_planes(
    process: ServingProcess, families: tuple[Family[ServingProcess], ...], readiness: Readiness
) -> PlaneApplications:
    """Make both planes and the console, with sign-in and policies."""
    settings, ctx, platform = process.settings, process.ctx, process.platform
    control = ControlPlane(
        _routes(families),
        platform,
        needs={HEALTH: readiness} | {family.name: family.provided(process) for family in families},
        vocabulary=_vocabulary(families),
    )
    challenges = Challenges(settings.public_url, settings.hosts)
    access = TokenAccess(process.bearers, challenges, ctx.clock, settings.proxies, platform.auditor)
    mirrors = Mirrors(settings.mirrored)
    data = DataPlane(ctx, access, TokenEndpoint(access, mirrors), mirrors)
    plane = cast("Application", control)
    console = Console(
        plane,
        ConsoleSettings(settings.url, settings.pull_host, settings.region, settings.founders),
        keyring=platform.keyring,
        clock=ctx.clock,
        once=RunOnce(ctx.database, platform.keyring, ctx.clock, ctx.new_id),
    )
    objects = _s3_endpoint(process)
    return _readable(PlaneApplications(data, plane, console, objects), settings.origins)


def _s3_endpoint(process: ServingProcess) -> Application | None:
    """Make the S3 endpoint, or return None if the settings name neither a port nor a host."""
    settings, platform = process.settings, process.platform
    if not settings.s3_port and not settings.s3_host:
        return None
    # Most installs have none, and load nothing of it.
    from cloudcore.identity.signature_keys import StoredSignatureKeys  # noqa: PLC0415
    from cloudcore.storage.s3.app import S3Endpoint, S3Needs  # noqa: PLC0415

    keys = StoredSignatureKeys(platform.database, platform.keyring, platform.clock)
    return S3Endpoint(
        S3Needs(
            platform=platform,
            storage=process.storage,
            keys=keys,
            host=settings.s3_host,
            any_region=settings.s3_any_region == "on",
        )
    )


SERVE: Final = Edition(FAMILIES, _surround, _make_planes, audits=True, begin=serve_zone)
"""``entrepot serve``: accounts, sign-in and all families."""


def _readable(planes: PlaneApplications, origins: Sequence[str]) -> PlaneApplications:
    """Let web pages of these origins read from both planes."""
    if not origins:
        return planes
    return planes._replace(
        data=CrossOriginReads(planes.data, origins),
        control=CrossOriginReads(planes.control, origins),
    )


def create_app(settings: Settings, mark: CommitMark | None = None) -> Dispatcher:
    """Return the ASGI application of ``entrepot serve``; any ASGI server can run it."""
    return application(Registry(settings, SERVE, mark=mark))
