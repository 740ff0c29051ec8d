"""What is metered of the registry."""

from __future__ import annotations

from typing import Final

from cloudcore.metering.sku import BYTE_HOURS_PER_GIB_MONTH, GIB, Sku

STORAGE: Final = Sku("registry.storage", "Stored images", "GiB-month", BYTE_HOURS_PER_GIB_MONTH)
TRANSFER: Final = Sku("registry.transfer", "Bytes pulled", "GiB", GIB)
PULLS: Final = Sku("registry.pulls", "Pulls of images", "1000 pulls", 1000)
REGISTRY_SKUS: Final = (STORAGE, TRANSFER, PULLS)
