"""Who makes a change, when and where: recorded in history and events."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, NamedTuple

from cloudcore.iam.audit import AuditClient
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
    client: AuditClient | None = None
    """The request on the data plane; None if nothing or the control plane records the change."""
    details: MutableMapping[str, Any] | None = None
    """Further details of the change's event in the audit log."""

    def begin(self) -> None:
        """Forget what was told: the transaction begins, perhaps again after a conflict.

        On ``/v1``, the kernel does it.
        """
        if self.details is not None:
            self.details.clear()

    def tell(self, kind: str, name: str, value: object) -> None:
        """Add to the details that `value` became of the thing `name`."""
        if self.details is not None:
            self.details.setdefault(kind, {})[str(name)] = value

    @property
    def stored_source(self) -> str | None:
        """Return the source as rows hold it."""
        return stored_source(self.source)
