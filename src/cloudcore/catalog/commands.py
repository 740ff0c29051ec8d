"""``entrepot catalog``: list regions and prices of a platform, without signing in."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.nouns import Command, Noun

CATALOG: Final = Noun(
    noun="catalog",
    words="regions and prices, for everyone",
    has_show=False,
    commands=(
        Command(
            verb="regions",
            words="list the regions and the URLs of their services",
            path="/v1/regions",
            method="GET",
            is_public=True,
            answer="regions",
            columns=("name", "display_name", "status", "endpoints"),
        ),
        Command(
            verb="prices",
            words="list what the services cost",
            path="/v1/prices",
            method="GET",
            is_public=True,
            answer="prices",
            columns=("sku", "service", "region", "unit", "amount", "currency"),
        ),
    ),
)

COMMANDS: Final = (CATALOG,)
