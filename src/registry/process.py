"""The parts of one process, made by the composition root; families take what they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.audit.needs import AuditNeeds
    from cloudcore.certificate.needs import CertificateNeeds
    from cloudcore.identity.needs import IdentityNeeds
    from cloudcore.kms.needs import KmsNeeds
    from cloudcore.notifications.needs import NotificationNeeds
    from cloudcore.queue.needs import QueueNeeds
    from cloudcore.storage.needs import StorageNeeds
    from cloudcore.web.context import Platform
    from registry.blobstore.base import BlobStore
    from registry.services.context import ServiceContext
    from registry.services.tokens import BearerTokens
    from registry.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The settings and stores of a process, under both ``entrepot dev`` and ``entrepot serve``."""

    settings: Settings
    ctx: ServiceContext
    store: BlobStore
    buckets: BlobStore | None = None
    """The bytes of buckets; None in an edition without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProcess(Process):
    """A process of ``entrepot serve``, with the parts for sign-in."""

    platform: Platform
    identity: IdentityNeeds
    audit: AuditNeeds
    kms: KmsNeeds
    notifications: NotificationNeeds
    queue: QueueNeeds
    certificates: CertificateNeeds
    storage: StorageNeeds
    bearers: BearerTokens
    """Signs and reads the bearers of ``/v2``."""
