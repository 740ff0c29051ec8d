"""What the composition root made for one process; families take from it what they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.identity.family import IdentityNeeds
    from cloudcore.web.context import Platform
    from registry.blobstore.base import BlobStore
    from registry.services.context import ServiceContext
    from registry.services.tokens import BearerTokens
    from registry.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The stores of a process, which ``entrepot dev`` has too."""

    settings: Settings
    ctx: ServiceContext
    store: BlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProcess(Process):
    """With what signing in takes; only ``entrepot serve`` has that."""

    platform: Platform
    identity: IdentityNeeds
    bearers: BearerTokens
    """Signs and reads the bearers of ``/v2``."""
