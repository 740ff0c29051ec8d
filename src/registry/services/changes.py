"""Who changes what, when: what a change's history and events tell of it."""

from __future__ import annotations

from typing import NamedTuple


class RegistryHost(NamedTuple):
    """Where this registry stands: what the names of its things begin with."""

    region: str
    pull_host: str
    """Host, and port if any, of image references."""


class Change(NamedTuple):
    """One caller's change at one moment."""

    principal: str
    """CRN of who does it; empty when nobody has signed in."""
    now: int
    """Microseconds since the epoch."""
    site: RegistryHost
