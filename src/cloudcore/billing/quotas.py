"""The quota of billing."""

from __future__ import annotations

from typing import Final

from cloudcore.quotas.quota import Quota

PAYMENT_METHODS: Final = Quota("payment_methods", 20, "payment methods", per="organization")
