"""What metering depends on: what the families report, and what is sampled of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.iam.policy import Policy
from cloudcore.metering.sampling import SAMPLES, Samples
from cloudcore.metering.sku import SKUS, Sku
from cloudcore.ports import Opening, Port
from cloudcore.web.context import RequestContext

MembershipPolicy = Callable[[RequestContext, str], Awaitable[Policy | None]]
MEMBERSHIP_POLICY: Final[Port[MembershipPolicy]] = Port("metering.membership_policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteringNeeds:
    """The dependencies of the routes and the chore of metering."""

    database: Database
    clock: Clock
    region: str
    skus: Mapping[str, Sku]
    """All that families report, by name."""
    samples: Sequence[Samples]
    membership_policy: MembershipPolicy
    """Returns what the membership of a person allows on an organization, given its CRN."""


async def open_needs(opening: Opening) -> MeteringNeeds:
    """Return the dependencies of one process."""
    return MeteringNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        region=opening.install.region,
        skus={each.name: each for each in await opening.get(SKUS)},
        samples=await opening.get(SAMPLES),
        membership_policy=await opening.get(MEMBERSHIP_POLICY),
    )
