"""The settings and stores of a process, from which its families are opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloudcore.ports import Port
from registry.blobstore.base import BlobStore
from registry.services.context import ServiceContext
from registry.settings.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The settings and stores of a process, under both ``entrepot dev`` and ``entrepot serve``."""

    settings: Settings
    ctx: ServiceContext
    store: BlobStore
    buckets: BlobStore | None = None
    """The bytes of buckets; None in an edition without them."""


STORES: Final[Port[Process]] = Port("registry.stores")
"""What is open before any family is; its context has no keys."""
