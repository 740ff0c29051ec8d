"""The routes of the registry on ``/v1``, a module for each noun."""

from __future__ import annotations

from typing import Final

from cloudcore.resources.routes import handlers_of
from registry.control import (
    authorization_token,
    encryption_bindings,
    event_rules,
    garbage_collection,
    image_deletion,
    images,
    lifecycle_policies,
    pins,
    pull_through_cache_rules,
    registry_settings,
    repositories,
    repository_policies,
    restoration,
    search,
    storage_usage,
    tags,
    visible_repositories,
)

HANDLERS: Final = handlers_of(
    authorization_token,
    encryption_bindings,
    event_rules,
    garbage_collection,
    image_deletion,
    images,
    lifecycle_policies,
    pins,
    pull_through_cache_rules,
    registry_settings,
    repositories,
    repository_policies,
    restoration,
    search,
    storage_usage,
    tags,
    visible_repositories,
)
