"""Describe dedicated IPs: addresses from which one account sends, and their warm-up.

Mail servers come to trust an unknown address gradually. So a new address sends little on its first
day, and more on each following day; mail beyond the day's cap is sent from the shared address.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, structs

from cloudcore.clock import MICROSECONDS
from cloudcore.email.resources import IP_POOL
from cloudcore.resources.resource import (
    Filter,
    Record,
    Reference,
    ReferenceTarget,
    Resource,
    given,
    own,
)

WarmupStatus = Literal["new", "warming", "warmed", "paused"]
DAY: Final = 24 * 3600 * MICROSECONDS
CAPS: Final = (50, 100, 500, 1_000, 5_000, 10_000, 20_000, 40_000, 70_000, 100_000)
"""Maximum number of recipients on each day (UTC) of the warm-up; later days have no limit.

The first day is that of the first recipient."""
WINDOW: Final = 1_000
"""How many of the last outcomes are considered."""
MOST_BOUNCED: Final = WINDOW // 10
"""An address is paused if more than this number of its last `WINDOW` outcomes are bounces."""
PAUSED: Final = "email.dedicated_ip.paused"


class DedicatedIP(Record, frozen=True, kw_only=True):
    """An address that only this account sends mail from."""

    address: Annotated[str, own(heading="ADDRESS")]
    warmup_status: Annotated[WarmupStatus, own(heading="WARM-UP")] = "new"
    """`new`: nothing was sent from it yet; `warming`: it may send so much a day; `warmed`: as much
    as it likes; `paused`: nothing, by its owner or because too much bounced."""
    warmup_percentage: Annotated[int, Meta(ge=0, le=100), own(heading="PERCENT", form="number")] = 0
    """Today's cap, as a percentage of the cap on the last day of the warm-up."""
    warmup_started_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    """When something was sent from it first."""
    ip_pool: Annotated[
        Reference | None, given("IP pool that it is in", heading="POOL", shows_null=True)
    ] = None
    """Null: it is in none, and nothing is sent from it."""
    day: Annotated[int, own(hidden=True)] = 0
    """The day of `sent`, counted from the epoch."""
    sent: Annotated[int, own(hidden=True)] = 0
    """Recipients on that day."""
    outcomes: Annotated[bytes, own(hidden=True)] = b""
    """The last `WINDOW` outcomes as a big-endian number. Its highest bit marks the start; each bit
    below is an outcome, 1 for a bounce, and the lowest bit is the latest."""


def as_of(of: DedicatedIP, now: int) -> DedicatedIP:
    """Return the dedicated IP with its status and warm-up percentage at `now`."""
    if of.warmup_started_at is None:
        return of
    age = _age(of, now)
    status: WarmupStatus = "warming" if age < len(CAPS) else "warmed"
    return structs.replace(
        of,
        warmup_status="paused" if of.warmup_status == "paused" else status,
        warmup_percentage=100 * CAPS[min(age, len(CAPS) - 1)] // CAPS[-1],
    )


def room(of: DedicatedIP, now: int) -> int | None:
    """Return how many more recipients the address may send to today; None if unlimited."""
    age = 0 if of.warmup_started_at is None else _age(of, now)
    if age >= len(CAPS):
        return None
    return max(0, CAPS[age] - sent_today(of, now))


def sent_today(of: DedicatedIP, now: int) -> int:
    """Return how many recipients were counted today (or on a later day, if the clock went back)."""
    return of.sent if of.day >= now // DAY else 0


def counted(of: DedicatedIP, recipients: int, now: int) -> DedicatedIP:
    """Return the dedicated IP with `recipients` added to today's count; this starts its warm-up."""
    return as_of(
        structs.replace(
            of,
            warmup_started_at=now if of.warmup_started_at is None else of.warmup_started_at,
            sent=sent_today(of, now) + recipients,
            day=max(of.day, now // DAY),
        ),
        now,
    )


def share(of: DedicatedIP, recipients: int, now: int) -> float:
    """Return the fraction of today's cap that is used once `recipients` more are counted.

    For a warmed address, the cap is that of the last day of the warm-up.
    """
    left, sent = room(of, now), sent_today(of, now)
    return (sent + recipients) / (CAPS[-1] if left is None else max(1, left + sent))


def with_outcome(of: DedicatedIP, *, bounced: bool, was_sent: bool = False) -> DedicatedIP:
    """Return the dedicated IP with one more outcome, paused if too many recent ones are bounces.

    `was_sent`: the message was counted as accepted before it bounced, so the latest accepted
    outcome becomes a bounce instead.
    """
    bits = int.from_bytes(of.outcomes, "big") or 1
    taken = ~bits & (bits + 1)  # the lowest 0
    if was_sent and taken < 1 << (bits.bit_length() - 1):
        bits |= taken
    else:
        bits = bits << 1 | bounced
    if bits >> (WINDOW + 1):
        bits = bits & ((1 << WINDOW) - 1) | 1 << WINDOW
    is_bad = bounced and bits.bit_count() - 1 > MOST_BOUNCED
    return structs.replace(
        of,
        outcomes=bits.to_bytes(-(-bits.bit_length() // 8), "big"),
        warmup_status="paused" if is_bad else of.warmup_status,
    )


def _age(of: DedicatedIP, now: int) -> int:
    """Return the days (UTC) since the warm-up began."""
    assert of.warmup_started_at is not None
    return max(0, now // DAY - of.warmup_started_at // DAY)


DEDICATED_IP: Final = Resource(
    record=DedicatedIP,
    service="email",
    one="dedicated_ip",
    many="dedicated_ips",
    words="dedicated IP",
    key="address",
    check_key=lambda _: None,
    methods=("list", "get", "update", "delete"),
    actions={
        "create": "RequestDedicatedIP",
        "list": "ListDedicatedIPs",
        "get": "GetDedicatedIP",
        "update": "UpdateDedicatedIP",
        "delete": "DeleteDedicatedIP",
    },
    more_actions=("PauseDedicatedIP", "ResumeDedicatedIP"),
    quota=50,
    filters=(Filter("address"),),
    refers={"ip_pool": ReferenceTarget(IP_POOL, "email:GetIPPool")},
)
"""The dedicated IPs of accounts."""
