"""The IP pools of accounts, and their rules."""

from __future__ import annotations

from typing import Final

from cloudcore.email.identity_rows import ROWS as IDENTITIES
from cloudcore.email.ip_pool_rows import ROWS
from cloudcore.resources.methods import Methods, Referrer

IP_POOLS: Final = Methods(ROWS, referrers=(Referrer(IDENTITIES, "ip_pool"),))
