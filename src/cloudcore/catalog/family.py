"""The family of the public catalogues."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.catalog.documents import CatalogNeeds
    from cloudcore.catalog.routes import Catalogues
    from cloudcore.ports import Opening


async def _open(opening: Opening) -> CatalogNeeds:
    from cloudcore.catalog import documents  # noqa: PLC0415 - SQLAlchemy

    return await documents.open_needs(opening)


def _routes() -> Sequence[HTTPRouteHandler]:
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

    return Catalogues(load_catalog(needs.file, needs.region, needs.url, needs.skus, needs.own_urls))


CATALOG: Final[Family[CatalogNeeds]] = Family(
    name="catalog",
    host=None,
    paths=("/v1/prices", "/v1/regions"),
    open=_open,
    routes=_routes,
    provided=_provided,
    commands=(CommandGroup("look around", ("cloudcore.catalog.commands",)),),
)
