"""The IP pools of accounts, and their rules."""

from __future__ import annotations

from typing import Final

from cloudcore.email.dedicated_ip_rows import ROWS as DEDICATED_IPS
from cloudcore.email.identity_rows import ROWS as IDENTITIES
from cloudcore.email.ip_pool_rows import ROWS
from cloudcore.resources.methods import Methods, Referrer

IP_POOLS: Final = Methods(
    ROWS, referrers=(Referrer(IDENTITIES, "ip_pool"), Referrer(DEDICATED_IPS, "ip_pool"))
)
