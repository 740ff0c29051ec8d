"""The stores that a process has open, and the settings they were opened with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloudcore.ports import Port
from registry.blobstore.store import BlobStore
from registry.services.context import ServiceContext
from registry.settings.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryStores:
    """The stores of a process, under both ``entrepot dev`` and ``entrepot serve``.

    Commands that work on stored data open only these; the registry's family needs them, too.
    """

    settings: Settings
    ctx: ServiceContext
    store: BlobStore
    buckets: BlobStore | None = None
    """The objects of accounts' buckets; None in an edition without buckets."""


STORES: Final[Port[RegistryStores]] = Port("registry.stores")
"""The stores before any family is opened; their `ctx` has no keys."""
