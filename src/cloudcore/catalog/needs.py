"""What the catalogue of services depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CatalogNeeds:
    """The catalogue file, and the values of its placeholders."""

    file: Path
    region: str
    url: str
    """Base URL of this install."""
