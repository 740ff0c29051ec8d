"""Look up the records by which owners of domains let their challenges lead to us."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cloudcore.certificate.certificate import Challenge, FaultCode

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver as Dns

_LOOKUP_SECONDS: Final = 5.0
_AT_ONCE: Final = 10


class DnsFailed(Exception):
    """No name server answered, or its answer was malformed; the text says which name was asked."""


class Resolver(Protocol):
    """Asks the DNS."""

    async def cname(self, name: str) -> str | None:
        """Return what a name's CNAME points to, with a dot at its end; None if it has none.

        Raises:
            DnsFailed

        """
        ...


class DnsResolver:
    """Asks name servers: those of the machine, or the one that the operator has set."""

    def __init__(self, server: tuple[str, int] | None = None) -> None:
        self._server = server
        self._dns: Dns | None = None

    async def cname(self, name: str) -> str | None:
        """Return what a name's CNAME points to, with a dot at its end; None if it has none.

        Raises:
            DnsFailed

        """
        from dns import exception, resolver  # noqa: PLC0415 - a tenth of a second

        try:
            answer = await self._resolver().resolve(name, "CNAME", search=False)
        except (resolver.NXDOMAIN, resolver.NoAnswer):
            return None
        except (exception.DNSException, OSError) as error:
            raise DnsFailed(f"{name} was not resolved: {type(error).__name__}") from None
        return str(answer[0].target).lower()

    def _resolver(self) -> Dns:
        from dns.asyncresolver import Resolver as Dns  # noqa: PLC0415 - a tenth of a second

        if self._dns is None:
            self._dns = Dns(configure=self._server is None)
            if self._server is not None:
                host, port = self._server
                self._dns.nameservers, self._dns.port = [host], port
            self._dns.lifetime = _LOOKUP_SECONDS
        return self._dns


class Seen(NamedTuple):
    """What a look at one challenge's record has found."""

    domain: str
    code: FaultCode | None
    """None if it leads to us."""
    message: str = ""


async def look_at(resolver: Resolver, challenges: Sequence[Challenge]) -> list[Seen]:
    """Return what the records of challenges are now; those that we host are always right."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def look(challenge: Challenge) -> Seen:
        if challenge.our_dns:
            return Seen(challenge.domain, None)
        async with slots:
            return await _look(resolver, challenge)

    return list(await asyncio.gather(*map(look, challenges)))


async def _look(resolver: Resolver, challenge: Challenge) -> Seen:
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
