"""What instances ask of the rest of the platform besides networks, images and roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cloudcore.compute.sandbox import SandboxDriver
from cloudcore.db.base import Connection
from cloudcore.ports import Port

PoolChanged = Callable[[Connection, str, str, int], object]
"""Is told, by account, pool and moment, that other instances of a pool take connections now."""

DRIVER: Final[Port[SandboxDriver | None]] = Port("compute.driver")
"""What runs instances on this machine; None if it runs none."""
DISK_MB: Final[Port[int]] = Port("compute.disk_mb")
"""MiB that an instance may write."""
POOL_CHANGED: Final[Port[PoolChanged]] = Port("compute.pool_changed")
