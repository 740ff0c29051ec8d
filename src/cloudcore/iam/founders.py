"""The setting for who may create organizations and accounts (see `cloudcore.identity.founding`)."""

from __future__ import annotations

from typing import Literal

Founders = Literal["nobody", "owners", "anyone"]
"""`owners`: owners of an organization that is not personal; they may create accounts in it."""
