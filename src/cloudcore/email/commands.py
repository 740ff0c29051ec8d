"""``entrepot suppressions``: addresses that get no mail."""

from __future__ import annotations

from typing import Final

from cloudcore.email.suppression import SUPPRESSION
from cloudcore.resources.nouns import noun_of

COMMANDS: Final = (noun_of(SUPPRESSION, words="addresses that get no mail of the account"),)
