"""Who may found organizations and accounts; `cloudcore.identity.founding` sees to it."""

from __future__ import annotations

from typing import Literal

Founders = Literal["nobody", "owners", "anyone"]
"""`owners`: persons who own an organization that is not personal; accounts, in those they own."""
