"""What the audit log depends on, and what it offers: to record events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from cloudcore.audit.log import FLUSH_SECONDS, AuditLog
from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.events import EVENTS, TOLD_CHANGES
from cloudcore.iam.audit import AUDITOR
from cloudcore.iam.policy import Policy
from cloudcore.jobs.running import recording
from cloudcore.ports import Opening, Port, offer
from cloudcore.web.context import RequestContext

NamedResource = Callable[[str, str], str]
MembershipPolicy = Callable[[RequestContext, str], Awaitable[Policy | None]]

KEPT_SECONDS: Final[Port[int]] = Port("audit.kept_seconds")
NAMED_RESOURCE: Final[Port[NamedResource]] = Port("audit.named_resource")
MEMBERSHIP_POLICY: Final[Port[MembershipPolicy]] = Port("audit.membership_policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditNeeds:
    """The dependencies of the audit log's routes and timer."""

    database: Database
    clock: Clock
    kept_seconds: int
    """Age at which events are deleted."""
    named_resource: NamedResource
    """Returns the CRN that a name in a filter means, given account and name, which may end in a
    ``*``."""
    membership_policy: MembershipPolicy
    """Returns what the membership of a person allows on an organization, given its CRN."""


async def open_needs(opening: Opening) -> AuditNeeds:
    """Return the dependencies of one process."""
    return AuditNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        kept_seconds=await opening.get(KEPT_SECONDS),
        named_resource=await opening.get(NAMED_RESOURCE),
        membership_policy=await opening.get(MEMBERSHIP_POLICY),
    )


async def _open_log(opening: Opening) -> AuditLog:
    """Return the audit log of one process, which writes what it noted when it ends."""
    install = opening.install
    events, told = await opening.get(EVENTS), await opening.get(TOLD_CHANGES)
    log = AuditLog(install.database, install.new_id, partial(events.tell_change, told))
    await opening.resources.enter_async_context(
        recording(FLUSH_SECONDS, log.flush, "events of the audit log")
    )
    return log


OFFERS: Final = (offer(AUDITOR, _open_log),)
