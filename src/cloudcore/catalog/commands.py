"""``entrepot catalog``: list regions and prices of a platform, without signing in."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import CommandLine, PublicList

_REGIONS: Final = PublicList(
    verb="regions",
    words="list the regions and the URLs of their services",
    path="/v1/regions",
    field="regions",
    columns=(
        ("NAME", "name"),
        ("DISPLAY NAME", "display_name"),
        ("STATUS", "status"),
        ("ENDPOINTS", "endpoints"),
    ),
)
_PRICES: Final = PublicList(
    verb="prices",
    words="list what the services cost",
    path="/v1/prices",
    field="prices",
    columns=(
        ("SKU", "sku"),
        ("SERVICE", "service"),
        ("REGION", "region"),
        ("UNIT", "unit"),
        ("AMOUNT", "amount"),
        ("CURRENCY", "currency"),
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``catalog regions`` and ``catalog prices``."""
    commands.add_public_lists("catalog", "regions and prices, for everyone", (_REGIONS, _PRICES))
