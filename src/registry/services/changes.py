"""Who makes a change, when and where: recorded in history and events."""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.iam.principal import Source, stored_source


class RegistryHost(NamedTuple):
    """The region and host of this registry, for CRNs and image references."""

    region: str
    pull_host: str
    """Host, and port if any, of image references."""


class Change(NamedTuple):
    """The caller, time and registry of one change."""

    principal: str
    """CRN of the caller; empty for an unauthenticated client."""
    now: int
    """Microseconds since the epoch."""
    registry_host: RegistryHost
    source: Source | None = None
    """Who is behind the principal; None for an unauthenticated client."""

    @property
    def stored_source(self) -> str | None:
        """Return the source as rows hold it."""
        return stored_source(self.source)
