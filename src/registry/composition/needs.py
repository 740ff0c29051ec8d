"""The registry's dependencies in an install with sign-in, and the ports it offers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from cloudcore.clock import uuid7
from cloudcore.events import EVENTS, Events
from cloudcore.identity.needs import SIGNING_KEYS
from cloudcore.kms.needs import VAULT
from cloudcore.ports import KEYRING, Opening, Port, known, offer
from cloudcore.web.context import AUTHENTICATOR
from registry.blobstore.opening import FileStore, open_bucket_store
from registry.composition.stores import STORES, RegistryStores
from registry.services.access.bearers import BearerSigner
from registry.services.access.tokens import BearerTokens
from registry.services.blobs import upload_ids
from registry.services.blobs.upload_ids import UploadIds
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys
from registry.services.events import FindTopics, ResolveTopic, matching_topics
from registry.services.pull_through.remote import credential_of, open_upstreams
from registry.settings.texts import AUTH

FIND_TOPICS: Final[Port[FindTopics]] = Port("registry.find_topics")
RESOLVE_TOPIC: Final[Port[ResolveTopic]] = Port("registry.resolve_topic")
OTHER_EVENT_TYPES: Final[Port[tuple[str, ...]]] = Port("registry.other_event_types")
"""Event types of other families that event rules may name."""
SERVICES: Final[Port[ServiceContext]] = Port("registry.services")
BUCKETS: Final[Port[FileStore]] = Port("registry.buckets")
"""The store of the objects in accounts' buckets."""
BEARERS: Final[Port[BearerTokens]] = Port("registry.bearers")
"""Signs and reads the bearers of ``/v2``."""


async def open_needs(opening: Opening) -> RegistryStores:
    """Return the stores, completed with the registry's services and the store of buckets."""
    stores = await opening.get(STORES)
    return replace(stores, ctx=await opening.get(SERVICES), buckets=await opening.get(BUCKETS))


async def _open_services(opening: Opening) -> ServiceContext:
    stores, keyring = await opening.get(STORES), await opening.get(KEYRING)
    settings, ctx = stores.settings, stores.ctx
    upstreams = open_upstreams(ctx.database, ctx.clock, settings.allowed_upstreams)
    return replace(
        ctx,
        upstream=await opening.resources.enter_async_context(upstreams),
        cache_credential=partial(credential_of, keyring),
        data_keys=DataKeys(await opening.get(VAULT)),
        seals=settings.seals,
        upload_ids=UploadIds(keyring.derive(upload_ids.CONTEXT)),
        find_topics=await opening.get(FIND_TOPICS),
        resolve_topic=await opening.get(RESOLVE_TOPIC),
        other_event_types=await opening.get(OTHER_EVENT_TYPES),
    )


async def _open_buckets(opening: Opening) -> FileStore:
    stores = await opening.get(STORES)
    buckets = open_bucket_store(stores.settings, stores.ctx.count)
    return await opening.resources.enter_async_context(buckets)


async def _open_bearers(opening: Opening) -> BearerTokens:
    install, settings = opening.install, (await opening.get(STORES)).settings
    keys, authenticator = await opening.get(SIGNING_KEYS), await opening.get(AUTHENTICATOR)
    signer = BearerSigner(keys, install.url_of(AUTH), settings.pull_host, install.clock, uuid7)
    return BearerTokens(install.database, install.clock, signer, authenticator, install.region)


OFFERS: Final = (
    offer(SERVICES, _open_services),
    offer(BUCKETS, _open_buckets),
    offer(BEARERS, _open_bearers),
    known(EVENTS, Events(matching_topics)),
)
