"""The family of the public catalogues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from litestar.types import ControllerRouterHandler

    from cloudcore.catalog.routes import Catalogues


@dataclass(frozen=True, slots=True)
class CatalogNeeds:
    """The catalogue file, and the values of its placeholders."""

    file: Path
    region: str
    url: str
    """Base URL of this install."""


def _routes() -> Sequence[ControllerRouterHandler]:
    from cloudcore.catalog import routes  # noqa: PLC0415 - the web framework

    return routes.HANDLERS


def _provided(needs: CatalogNeeds) -> Catalogues:
    file = needs.file
    state = file.stat() if file.exists() else None
    return _loaded(needs, state and (state.st_ino, state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1)
def _loaded(needs: CatalogNeeds, _state: object) -> Catalogues:
    """Load the file, once in this state, so that forked workers share what it holds."""
    from cloudcore.catalog.documents import load_catalog  # noqa: PLC0415
    from cloudcore.catalog.routes import Catalogues  # noqa: PLC0415 - the web framework

    return Catalogues(load_catalog(needs.file, needs.region, needs.url))


CATALOG: Final[Family[CatalogNeeds]] = Family(
    name="catalog",
    routes=_routes,
    provided=_provided,
    commands=(CommandGroup("look around", ("cloudcore.catalog.commands",)),),
)
