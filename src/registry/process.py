"""The parts of one process, made by the composition root; families take what they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.audit.family import AuditNeeds
    from cloudcore.identity.family import IdentityNeeds
    from cloudcore.kms.family import KmsNeeds
    from cloudcore.notifications.family import NotificationNeeds
    from cloudcore.queue.family import QueueNeeds
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProcess(Process):
    """A process of ``entrepot serve``, with the parts for sign-in."""

    platform: Platform
    identity: IdentityNeeds
    audit: AuditNeeds
    kms: KmsNeeds
    notifications: NotificationNeeds
    queue: QueueNeeds
    bearers: BearerTokens
    """Signs and reads the bearers of ``/v2``."""
