"""Look up DNS records with the name servers of the machine, or the operator's."""

from __future__ import annotations

import asyncio
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from cloudcore.outbound.destinations import Address

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver as Dns
    from dns.resolver import Answer

_LOOKUP_SECONDS: Final = 5.0


class DnsFailed(Exception):
    """No name server answered, or its answer was malformed; the text has the name."""


class DnsResolver:
    """Queries the machine's name servers, or the one that the operator has configured."""

    def __init__(self, server: tuple[str, int] | None = None) -> None:
        self._server = server

    async def cname(self, name: str) -> str | None:
        """Return the target of a name's CNAME, with a final dot, or None if it has none.

        Raise `DnsFailed` if no name server gives a valid answer.
        """
        answer = await self._answer(name, "CNAME")
        return None if answer is None else str(answer[0].target).lower()

    async def texts(self, name: str) -> list[bytes]:
        """Return the TXT records of a name, each joined to one string (RFC 7208 §3.3).

        Raise `DnsFailed` if no name server gives a valid answer.
        """
        answer = await self._answer(name, "TXT")
        return [] if answer is None else [b"".join(each.strings) for each in answer]

    async def mail_exchangers(self, name: str) -> list[tuple[int, str]]:
        """Return (preference, host) of a domain's MX records, best first.

        A null MX (RFC 7505) has an empty host.

        Raise `DnsFailed` if no name server gives a valid answer.
        """
        answer = await self._answer(name, "MX")
        found: Any = answer or ()
        hosts = [(each.preference, str(each.exchange).rstrip(".").lower()) for each in found]
        return sorted(hosts)

    async def addresses(self, name: str) -> list[Address]:
        """Return the addresses of a host, IPv4 first; empty if it has none.

        Raise `DnsFailed` if no name server gives a valid answer.
        """
        kinds = ("A", "AAAA")
        asked = (self._answer(name, kind) for kind in kinds)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = [
            ip_address(each.address)
            for answer in answers
            if answer is not None and not isinstance(answer, BaseException)
            for each in answer
        ]
        failed = [each for each in answers if isinstance(each, BaseException)]
        if failed and not found:
            raise failed[0]
        return found

    async def _answer(self, name: str, kind: str) -> Answer | None:
        """Return a name's records of one type, or None if it has none."""
        from dns import exception, resolver  # noqa: PLC0415 - a tenth of a second

        try:
            return await self._dns.resolve(name, kind, search=False)
        except (resolver.NXDOMAIN, resolver.NoAnswer):
            return None
        except (exception.DNSException, OSError) as error:
            raise DnsFailed(f"{name} was not resolved: {type(error).__name__}") from None

    @cached_property
    def _dns(self) -> Dns:
        from dns.asyncresolver import Resolver as Dns  # noqa: PLC0415 - a tenth of a second

        made = Dns(configure=self._server is None)
        if self._server is not None:
            host, made.port = self._server
            made.nameservers = [host]
        made.lifetime = _LOOKUP_SECONDS
        return made
