"""Passwords that are quick to check."""

from __future__ import annotations

from typing import Final

from cloudcore.iam.passwords import ScryptCost

CHEAP: Final = ScryptCost(log_n=4, r=8, p=1)
"""A cost of 0.1 ms; at `cloudcore.iam.passwords.COST`, a check takes 250 ms of a processor."""
KEPT_PASSWORD: Final = f"scrypt$10$1$1${'A' * 24}${'A' * 44}"
"""A stored password that no password matches."""
