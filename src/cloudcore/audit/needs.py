"""What the audit log depends on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.clock import Clock
    from cloudcore.db.base import Database
    from cloudcore.iam.policy import Policy
    from cloudcore.web.context import RequestContext


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditNeeds:
    """The dependencies of the audit log's routes and timer."""

    database: Database
    clock: Clock
    kept_seconds: int
    """Age at which events are deleted."""
    named_resource: Callable[[str, str], str]
    """Returns the CRN that a name in a filter means, given account and name, which may end in a
    ``*``."""
    membership_policy: Callable[[RequestContext, str], Awaitable[Policy | None]]
    """Returns what the membership of a person allows on an organization, given its CRN."""
