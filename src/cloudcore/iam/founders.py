"""Who may found organizations and accounts; `cloudcore.identity.founding` enforces it."""

from __future__ import annotations

from typing import Literal

Founders = Literal["nobody", "owners", "anyone"]
"""`owners`: persons who own an organization that is not personal; they found accounts in it."""
