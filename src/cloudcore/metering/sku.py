"""SKUs: kinds of use that are metered and priced, each described once by its family.

This module is cheap to import: the command line reads the descriptions too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cloudcore.ports import Port

GIB: Final = 1 << 30
HOURS_PER_MONTH: Final = 730
"""Hours in a priced GiB-month: a twelfth of the 8,760 hours of a year, so that each hour costs the
same."""
BYTE_HOURS_PER_GIB_MONTH: Final = GIB * HOURS_PER_MONTH

_NAME: Final = re.compile(r"[a-z][a-z0-9-]*\.[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Sku:
    """One kind of use, as ``GET /v1/prices`` and ``GET /v1/usage`` name it."""

    name: str
    """``service.what``, such as ``storage.requests``."""
    words: str
    """The name that persons see."""
    unit: str
    """The unit that the price is for."""
    divisor: int = 1
    """How many of the smallest units, in which use is reported, make up one `unit`."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a malformed name, or a divisor that is not positive."""
        if not _NAME.fullmatch(self.name) or self.divisor < 1:
            raise ValueError(f"no SKU: {self.name!r} by {self.divisor}")

    @property
    def service(self) -> str:
        """Return the service that the SKU belongs to."""
        return self.name.partition(".")[0]


REQUESTS: Final = "requests"
"""The second part of the name of a service's SKU for requests."""
REQUESTS_OF_API: Final = Sku("api.requests", "Other requests", "1000 requests", 1000)
"""The SKU for requests to families that have no SKU of their own for requests."""
SKUS: Final[Port[tuple[Sku, ...]]] = Port("metering.skus")
"""All SKUs of the install's families."""
