"""The quotas of the registry."""

from __future__ import annotations

from typing import Final

from cloudcore.quotas.quota import Quota

EVENT_RULES: Final = Quota("event_rules", 50, "event rules")
"""Every change of an account's repositories is matched with all its rules."""
LOGINS: Final = Quota("logins", 10_000, "open container logins")
CACHE_RULES: Final = Quota("pull_through_cache_rules", 50, "pull-through cache rules")

QUOTAS: Final = (EVENT_RULES, LOGINS, CACHE_RULES)
