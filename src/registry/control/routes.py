"""The routes of the registry on ``/v1``, a module for each noun."""

from __future__ import annotations

from typing import Final

from litestar.handlers import HTTPRouteHandler

from registry.control import (
    credentials,
    encryption,
    event_rules,
    garbage_collection,
    image_descriptions,
    images,
    lifecycle,
    pins,
    policies,
    pull_through_cache_rules,
    repositories,
    restoration,
    search,
    settings,
    storage,
    tags,
    visible_repositories,
)

_MODULES: Final = (
    credentials,
    encryption,
    event_rules,
    garbage_collection,
    image_descriptions,
    images,
    lifecycle,
    pins,
    policies,
    pull_through_cache_rules,
    repositories,
    restoration,
    search,
    settings,
    storage,
    tags,
    visible_repositories,
)
HANDLERS: Final = tuple(
    handler
    for module in _MODULES
    for handler in vars(module).values()
    if isinstance(handler, HTTPRouteHandler)
)
