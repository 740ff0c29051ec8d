"""What is metered of buckets."""

from __future__ import annotations

from typing import Final

from cloudcore.metering.sku import BYTE_HOURS_PER_GIB_MONTH, GIB, Sku

SERVICE: Final = "storage"
STORAGE: Final = Sku("storage.storage", "Stored objects", "GiB-month", BYTE_HOURS_PER_GIB_MONTH)
TRANSFER: Final = Sku("storage.transfer", "Bytes of objects read", "GiB", GIB)
REQUESTS: Final = Sku("storage.requests", "Requests of buckets", "1000 requests", 1000)
STORAGE_SKUS: Final = (STORAGE, TRANSFER, REQUESTS)
