"""The dependencies of every service: stores, clock, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudcore.clock import Clock, uuid7
from cloudcore.db.base import Database
from cloudcore.iam.audit import AuditClient
from cloudcore.iam.principal import SourceIdentity
from cloudcore.outbound.destinations import Allowed
from cloudcore.serving.counters import Count, count_nothing
from registry.blobstore.base import BlobLinks
from registry.blobstore.store import BlobReader, BlobWriter
from registry.metadata.images.manifests import StoredManifest
from registry.metadata.pull_through.lookups import KeptTags
from registry.services.blobs.damage import BrokenWraps
from registry.services.blobs.push_cache import PushCache
from registry.services.blobs.upload_ids import UploadIds
from registry.services.blobs.upload_leases import Leases
from registry.services.changes import Change, RegistryHost
from registry.services.events import FindTopics, ResolveTopic, no_topic, no_topics
from registry.services.images.manifest_damage import ManifestDamage
from registry.services.images.pulls import PullLog
from registry.services.pull_through.concurrency import SingleFlight
from registry.services.pull_through.fills import Fills
from registry.services.pull_through.remote import OpenCredential, no_credential
from registry.settings.groups import Delays, Limits
from registry.upstream.client import RegistryClient

if TYPE_CHECKING:
    from registry.services.data_keys import DataKeys


_PUBLIC = Allowed("ENTREPOT_UPSTREAM_ALLOWED")


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The dependencies of a service call; a process has one."""

    database: Database
    reader: BlobReader
    writer: BlobWriter
    clock: Clock
    new_id: Callable[[], str]
    limits: Limits
    pulls: PullLog
    registry_host: RegistryHost
    delays: Delays = field(default_factory=Delays)
    manifest_damage: ManifestDamage = field(default_factory=ManifestDamage)
    broken_wraps: BrokenWraps = field(default_factory=BrokenWraps)
    leases: Leases = field(default_factory=lambda: Leases(uuid7()))
    upload_ids: UploadIds = field(default_factory=UploadIds)
    push_cache: PushCache = field(default_factory=PushCache)
    """The targets of recent small pushes."""
    links: BlobLinks | None = None
    """Makes URLs of blobs to which clients are redirected; None if clients are not redirected."""
    data_keys: DataKeys | None = None
    """Opens and wraps the data keys of blobs; None if this process has no keys."""
    upstream: RegistryClient | None = None
    """The client of upstream registries. If None, only cached content is served, and nothing is
    fetched."""
    cache_credential: OpenCredential = no_credential
    """Decrypts the credential of a rule of the pull-through cache."""
    manifest_fetches: SingleFlight[StoredManifest] = field(default_factory=SingleFlight)
    """Requests to upstreams for manifests, in progress."""
    upstream_allowed: Allowed = _PUBLIC
    """The upstreams that rules may name, besides those on the public internet."""
    referrer_fetches: SingleFlight[bytes] = field(default_factory=SingleFlight)
    """Requests to upstreams for referrers, in progress."""
    tag_list_fetches: SingleFlight[KeptTags] = field(default_factory=SingleFlight)
    """Requests to upstreams for lists of tags, in progress."""
    seals: bool = False
    """True if new blobs are stored encrypted; then `data_keys` is not None."""
    audits: bool = False
    """True if runs that have deleted something are recorded in the audit log."""
    on_damage: Callable[[], None] = lambda: None
    """Called when a blob or a manifest is newly found damaged."""
    count: Count = count_nothing
    """Counts an event (`registry.counters`)."""
    fills: Fills = field(default_factory=Fills)
    """Blobs that are being fetched from upstreams."""
    find_topics: FindTopics = no_topics
    resolve_topic: ResolveTopic = no_topic
    """Finds the topic that a request for an event rule names."""
    other_event_types: tuple[str, ...] = ()
    """Event types, besides those of the registry, that event rules may name."""

    def change_by(
        self,
        principal: str,
        source: SourceIdentity | None = None,
        client: AuditClient | None = None,
    ) -> Change:
        """Return a change by `principal` now; `source` is the identity behind the principal.

        With the `client` of a request, the change is recorded in the audit log.
        """
        return Change(principal, self.clock(), self.registry_host, source, client, {})
