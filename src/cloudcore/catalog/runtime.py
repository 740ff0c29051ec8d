"""The catalog family at run time: its routes, and the documents that they serve."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cloudcore.catalog import routes
from cloudcore.catalog.documents import CatalogNeeds, load_catalog, open_needs
from cloudcore.catalog.routes import Catalogues
from cloudcore.family import Runtime
from cloudcore.resources.routes import handlers_of


def _provided(needs: CatalogNeeds) -> Catalogues:
    file = needs.file
    state = file.stat() if file.exists() else None
    return _loaded(needs, state and (state.st_ino, state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1)
def _loaded(needs: CatalogNeeds, _state: object) -> Catalogues:
    """Load the catalogues once, before the fork, so that workers share the memory.

    `_state` identifies the version of the file; another state loads the file again.
    """
    return Catalogues(load_catalog(needs.file, needs.region, needs.url, needs.skus, needs.own_urls))


RUNTIME: Final[Runtime[CatalogNeeds]] = Runtime(
    open=open_needs, routes=handlers_of(routes), provided=_provided
)
