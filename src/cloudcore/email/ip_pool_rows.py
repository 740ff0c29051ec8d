"""The rows of IP pools."""

from __future__ import annotations

from typing import Final

from cloudcore.email.ip_pool import IP_POOL
from cloudcore.resources.rows import Rows

ROWS: Final = Rows(IP_POOL)
