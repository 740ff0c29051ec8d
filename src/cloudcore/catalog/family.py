"""The catalog family: the public lists of regions and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from cloudcore.catalog.documents import CatalogNeeds


CATALOG: Final[Family[CatalogNeeds]] = Family(
    name="catalog",
    host=None,
    runs="cloudcore.catalog.runtime:RUNTIME",
    paths=("/v1/prices", "/v1/regions"),
    commands=(CommandGroup("look around", ("cloudcore.catalog.commands",)),),
)
