"""Look up the records by which owners of domains let their challenges lead to us."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.certificate.certificate import Challenge, FaultCode
from cloudcore.outbound.dns_resolver import DnsFailed, DnsResolver

_AT_ONCE: Final = 10


class Seen(NamedTuple):
    """What a look at one challenge's record has found, or why an authority refused a domain."""

    domain: str
    """As it was asked for: a wildcard with its star."""
    code: FaultCode | None
    """None if it leads to us."""
    message: str = ""


async def look_at(resolver: DnsResolver, challenges: Sequence[Challenge]) -> list[Seen]:
    """Return what the records of challenges are now; those that we host are always right."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def look(challenge: Challenge) -> Seen:
        if challenge.our_dns:
            return Seen(challenge.domain, None)
        async with slots:
            return await _look(resolver, challenge)

    return list(await asyncio.gather(*map(look, challenges)))


async def _look(resolver: DnsResolver, challenge: Challenge) -> Seen:
    domain, record = challenge.domain, challenge.cname_record_name
    try:
        target = await resolver.cname(record)
    except DnsFailed as error:
        return Seen(domain, "DNS_UNREACHABLE", str(error))
    if target is None:
        wanted = f"publish {record} CNAME {challenge.expected_cname}"
        return Seen(domain, "CNAME_MISSING", f"{record} has no CNAME; {wanted}")
    if target != challenge.expected_cname.lower():
        return Seen(
            domain,
            "CNAME_MISMATCH",
            f"{record} is a CNAME of {target[:255]}, and not of {challenge.expected_cname}",
        )
    return Seen(domain, None)
