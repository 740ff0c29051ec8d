"""A served install with certificates, an authority that can be cut off, and a name server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy import bindparam, select

from cloudcore.certificate import chores, rows
from cloudcore.certificate.certificate import Certificate
from cloudcore.certificate.embedded import EmbeddedAuthority
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.issuer import Chain, Issuers, TxtRecords
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.certificate.rows import ROWS
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.jobs.queue import Job
from cloudcore.jobs.tables import jobs
from tests.certificates import uploaded
from tests.integration.served_world import Served, open_served
from tests.jobs import find_job, run_due
from tests.name_server import NameServer, name_server

_JOB: Final = Statement(select(jobs.c.id).where(jobs.c.dedup_key == bindparam("of")))
ZONE: Final = "cloud.test"
DAY: Final = 24 * 3600


@dataclass
class Authority:
    """The authority of the install behind a line that the test can cut."""

    embedded: EmbeddedAuthority
    checks_dns: bool = False
    failure: Exception | None = None
    issued: list[tuple[str, ...]] = field(default_factory=list)
    revoked: list[bytes] = field(default_factory=list)
    published: dict[str, list[str]] = field(default_factory=dict)
    """The TXT values of each name, as DNS had them while it issued."""

    @property
    def name(self) -> str:
        """Return its word."""
        return self.embedded.name

    async def issue(self, csr_der: bytes, domains: Sequence[str], txt: TxtRecords) -> Chain:
        """Issue, or fail as the test wants; if it checks the DNS, let values be published."""
        if self.failure is not None:
            raise self.failure
        if self.checks_dns:
            await txt.publish({each: f"proof of {each}" for each in domains})
            self.published = {
                name: await self.embedded.database.read(rows.txt_values, name)
                for name in self.published
            }
        self.issued.append(tuple(domains))
        return await self.embedded.issue(csr_der, domains, txt)

    async def revoke(self, certificate_der: bytes, reason: str | None) -> None:
        """Revoke, or fail as the test wants."""
        if self.failure is not None:
            raise self.failure
        self.revoked.append(certificate_der)
        await self.embedded.revoke(certificate_der, reason)


@dataclass
class World:
    """The install, its authority, and the name server that it asks."""

    served: Served
    names: NameServer
    authority: Authority

    @property
    def needs(self) -> CertificateNeeds:
        """Return the parts of certificates, with the authority of the test."""
        needs = self.served.certificates
        proofs = replace(needs.proofs, checks_dns=self.authority.checks_dns)
        return replace(needs, issuers=Issuers(self.authority), proofs=proofs)

    def token(self) -> str:
        """Return an access token of acme's program that is valid now."""
        return self.served.fresh_token()

    async def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> httpx.Response:
        """Send a request of acme's program."""
        return await self.served.ask(
            method, f"/v1/certificates{path}", body, token=self.token(), headers=headers
        )

    async def request(self, name: str, *domains: str, **fields: object) -> dict[str, Any]:
        """Ask for a certificate; return its record."""
        made = await self.ask("POST", "", {"name": name, "domains": list(domains), **fields})
        assert made.status_code == 202, made.text
        return dict(made.json()["certificate"])

    async def issued(self, name: str = "web", *domains: str) -> dict[str, Any]:
        """Return the record of a certificate that was issued."""
        made = await self.request(name, *(domains or ("www.acme.test",)))
        await self.work()
        return await self.show(made)

    async def show(self, made: dict[str, Any]) -> dict[str, Any]:
        """Return the record of a certificate as it is now."""
        answer = await self.ask("GET", f"/{made['id']}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["certificate"])

    async def tell(self, types: str) -> None:
        """Let events of these types be told, so that they are in the outbox."""
        topic = await self.served.make("/v1/topics", {"name": "tls"}, token=self.token())
        rule = {"topic": topic["crn"], "event_types": [types]}
        await self.served.make("/v1/event-rules", rule, token=self.token())

    async def work(self, *, after: float = 0) -> None:
        """Let some seconds pass, run the chores, and the jobs until none is due."""
        served, needs = self.served, self.needs
        served.clock.now += int(after * MICROSECONDS)
        await chores.record_expiries(needs)
        await chores.renew_due(needs)
        await run_due(served.database, list(CERTIFICATE.runtime.job_kinds(needs)), served.clock)

    async def worked(self, made: dict[str, Any], *, after: float = 0) -> dict[str, Any]:
        """Let seconds pass and work be done, as `work`; return the record as it is then."""
        await self.work(after=after)
        return await self.show(made)


@asynccontextmanager
async def open_world(data: Path, database_url: str) -> AsyncIterator[World]:
    """Open an install that grants ``acme.test`` to acme, and has a zone for all other domains."""
    async with (
        name_server() as names,
        open_served(
            data,
            database_url,
            certificate_grants="acme.test=acme,everyone.test=*,granted.test=*",
            certificate_zone=ZONE,
            dns_resolver=names.address,
        ) as served,
    ):
        yield World(served, names, Authority(served.certificates.embedded))


def codes(record: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return code, severity and count of the faults of a record."""
    return [(each["code"], each["severity"], each["occurrences"]) for each in record["faults"]]


async def upload(world: World, name: str = "up", **fields: object) -> dict[str, Any]:
    """Upload a certificate; return its record."""
    body = {"name": name, **uploaded("up.example.com", world.served.clock()), **fields}
    made = await world.ask("POST", "/upload", body)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/v1/certificates/{made.json()['certificate']['id']}"
    return dict(made.json()["certificate"])


async def stored(world: World, record: dict[str, Any]) -> Certificate:
    """Return the row of a certificate."""
    found = await world.served.database.read(ROWS.find, world.served.acme.account_id, record["id"])
    assert found is not None
    return found


async def job_of(world: World, made: dict[str, Any]) -> Job:
    """Return the job of a certificate."""

    def read(tx: Connection) -> Job:
        row = tx.row(_JOB, of=made["id"])
        assert row is not None
        found = find_job(tx, row[0])
        assert found is not None
        return found

    return await world.served.database.read(read)
