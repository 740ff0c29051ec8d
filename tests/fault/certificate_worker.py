"""A worker to be killed: ``python -m tests.fault.certificate_worker URL PLACE``.

It works on certificates, with the authority of the install. At a place of that name it says so, and
waits for death; without a name it only works.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from cloudcore.certificate.domains import DomainGrants, parse_grants
from cloudcore.certificate.embedded import EmbeddedAuthority
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.issuer import Chain, Issuers, Proofs, TxtRecords
from cloudcore.certificate.keys import PrivateKeys
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.events import NO_EVENTS
from cloudcore.jobs import queue
from cloudcore.jobs.worker import JobPace, JobWorker
from cloudcore.keyring import Keyring
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.vault import PlatformKeys, Vault
from cloudcore.outbound.dns_resolver import DnsResolver
from tests.dying import DyingDatabase, Moment

PACE: Final = JobPace(poll_seconds=0.02)
KEYRING: Final = Keyring(bytes(32))
PROVIDERS: Final = Providers(EmbeddedProvider(KEYRING))
PROOFS: Final = Proofs(DomainGrants(parse_grants(["acme.test=*"])), "", checks_dns=False)
LEASE: Final = "lease"
ASKED: Final = "the authority is asked"
DONE: Final = "the authority has done it"
END: Final = "end of certificate.work"
PLACES: Final = (LEASE, ASKED, DONE, END)
"""Before the job is taken; before and after what the authority does; before it is recorded."""


Names = Mapping[Callable[..., object], str]
_NO_NAMES: Final[Names] = {}


class Death:
    """The place at which the process waits to be killed."""

    def __init__(self, place: str, names: Names = _NO_NAMES) -> None:
        """Call further writes by `names`."""
        self._place = place
        self._names: Names = {queue.lease: LEASE, **names}
        self._is_dying = False

    async def come_to(self, place: str) -> None:
        """Wait for death, if this is the place, or it was reached."""
        if place and place == self._place and not self._is_dying:
            self._is_dying = True
            sys.stdout.write("waiting\n")
            sys.stdout.flush()
        if self._is_dying:
            await asyncio.Event().wait()

    async def come_to_write(self, moment: Moment, change: Callable[..., object]) -> None:
        """Wait for death before a write, if its name is that of the place."""
        if moment == "before":
            await self.come_to(self._name_of(change))

    def _name_of(self, change: Callable[..., object]) -> str:
        if isinstance(change, partial) and change.func.__name__ == "_commit":
            return f"end of {change.args[0].kind}"
        return self._names.get(change, "")


class DyingAuthority(EmbeddedAuthority):
    """The authority of the install; the process may die before and after what it does."""

    death = Death("")

    async def issue(
        self, csr_der: bytes, domains: Sequence[str], txt: TxtRecords | None = None
    ) -> Chain:
        await self.death.come_to(ASKED)
        issued = await super().issue(csr_der, domains, txt)
        await self.death.come_to(DONE)
        return issued

    async def revoke(self, certificate_der: bytes, reason: str | None) -> None:
        await self.death.come_to(ASKED)
        await super().revoke(certificate_der, reason)
        await self.death.come_to(DONE)


def private_keys(database: Database) -> PrivateKeys:
    """Return what seals the keys of certificates."""
    vault = Vault(database, PROVIDERS, system_clock)
    return PrivateKeys(PlatformKeys(database, vault))


def worker(database: Database, place: str = "") -> JobWorker:
    """Return a worker that waits for death at a place; at none, it works."""
    death = Death(place)
    dying = DyingDatabase(database, death.come_to_write)
    authority = DyingAuthority(dying, system_clock, uuid7, KEYRING, "http://registry.test")
    authority.death = death
    needs = CertificateNeeds(
        database=dying,
        clock=system_clock,
        private_keys=private_keys(database),
        embedded=authority,
        issuers=Issuers(authority),
        resolver=DnsResolver(),
        proofs=PROOFS,
        events=NO_EVENTS,
    )
    return JobWorker(dying, CERTIFICATE.runtime.job_kinds(needs), pace=PACE)


async def main(url: str, place: str) -> None:
    """Work until killed."""
    await worker(open_database(url), place).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
