"""``entrepot suppressions`` and ``entrepot ip-pools``."""

from __future__ import annotations

from typing import Final

from cloudcore.email.ip_pool import IP_POOL
from cloudcore.email.suppression import SUPPRESSION
from cloudcore.resources.nouns import noun_of

COMMANDS: Final = (
    noun_of(SUPPRESSION, words="addresses that get no mail of the account"),
    noun_of(IP_POOL, words="groups of dedicated IP addresses to send mail from"),
)
