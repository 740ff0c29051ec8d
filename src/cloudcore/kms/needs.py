"""What keys depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.clock import Clock
    from cloudcore.db.base import Database
    from cloudcore.iam.audit import Auditor
    from cloudcore.kms.making import KeyMaker
    from cloudcore.kms.vault import Vault


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsNeeds:
    """The dependencies of the routes and the timer of keys."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    maker: KeyMaker
    vault: Vault
    auditor: Auditor | None
    """Records deletions that are due, or None to record nothing."""
