"""All that the workers of a registry count besides requests: its events, and reached quotas."""

from __future__ import annotations

from typing import Final

from cloudcore.own_certificate.paths import ORDER_EVENTS
from cloudcore.serving.counters import QUOTAS, CountedEvent, Watched
from cloudcore.serving.tls.files import HANDSHAKE_EVENT
from registry import counted
from registry.families import FAMILIES

_REACHED: Final = tuple(
    CountedEvent(
        f"{QUOTAS}.{quota.name}",
        "entrepot_quota_refusals",
        "Requests refused because a quota is reached.",
        {"quota": quota.name},
    )
    for family in FAMILIES
    for quota in family.quotas
)
WATCHED: Final = Watched(
    (*counted.EVENTS, HANDSHAKE_EVENT, *ORDER_EVENTS, *_REACHED), counted.OUTCOMES
)
