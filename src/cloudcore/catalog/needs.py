"""What the catalogue of services depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.ports import Opening, Port

FILE: Final[Port[Path]] = Port("catalog.file")
"""The catalogue file."""


class CatalogNeeds(NamedTuple):
    """The catalogue file, and the values of its placeholders."""

    file: Path
    region: str
    url: str
    """Base URL of this install."""
    own_urls: tuple[tuple[str, str], ...]
    """Names and base URLs of what has one of its own."""


async def open_needs(opening: Opening) -> CatalogNeeds:
    """Return the dependencies of one process."""
    install = opening.install
    own_urls = tuple(install.own_urls.items())
    return CatalogNeeds(await opening.get(FILE), install.region, install.url, own_urls)
