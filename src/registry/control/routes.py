"""The routes of the registry on ``/v1``, a module for each noun."""

from __future__ import annotations

from typing import Final

from cloudcore.resources.routes import handlers_of
from registry.control import (
    credentials,
    encryption,
    event_rules,
    garbage_collection,
    image_deletion,
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

HANDLERS: Final = handlers_of(
    credentials,
    encryption,
    event_rules,
    garbage_collection,
    image_deletion,
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
