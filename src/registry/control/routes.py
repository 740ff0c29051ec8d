"""The routes of the registry on ``/v1``, a module for each noun."""

from __future__ import annotations

from typing import Final

from registry.control import (
    activity,
    credentials,
    encryption,
    event_rules,
    garbage_collection,
    image_descriptions,
    images,
    index_deletion,
    key_usage,
    lifecycle,
    pins,
    policies,
    pull_through_cache_rules,
    repositories,
    restoration,
    rewrap_runs,
    search,
    settings,
    storage,
    tags,
    visible_repositories,
)

HANDLERS: Final = (
    *repositories.HANDLERS,
    *restoration.HANDLERS,
    *search.HANDLERS,
    *visible_repositories.HANDLERS,
    *policies.HANDLERS,
    *encryption.HANDLERS,
    *key_usage.HANDLERS,
    *rewrap_runs.HANDLERS,
    *images.HANDLERS,
    *index_deletion.HANDLERS,
    *tags.HANDLERS,
    *pins.HANDLERS,
    *lifecycle.HANDLERS,
    *storage.HANDLERS,
    *activity.HANDLERS,
    *settings.HANDLERS,
    *event_rules.HANDLERS,
    *pull_through_cache_rules.HANDLERS,
    *credentials.HANDLERS,
    *image_descriptions.HANDLERS,
    *garbage_collection.HANDLERS,
)
