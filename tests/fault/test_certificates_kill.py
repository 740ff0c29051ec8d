"""Workers killed at each step of an issue and of a revocation: nothing is half there."""

from __future__ import annotations

import asyncio

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cloudcore.certificate import embedded, rows, services
from cloudcore.certificate.certificate import Certificate
from cloudcore.certificate.keys import public_der
from cloudcore.certificate.rows import ROWS
from cloudcore.certificate.workflow import WORK
from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.events import NO_EVENTS
from cloudcore.kms.services import KeyMaker
from tests.databases import on_both_databases
from tests.fault.certificate_worker import (
    LEASE,
    PLACES,
    PROOFS,
    PROVIDERS,
    private_keys,
    worker,
)
from tests.fault.deaths import be_killed
from tests.jobs import end_leases, running, until
from tests.kms_world import ACME, add_account


def requested(name: str) -> Certificate:
    """Return a new certificate that has nothing yet."""
    now = system_clock()
    return Certificate(
        id=uuid7(now),
        account_id=ACME,
        region="local",
        name=name,
        domains=("www.acme.test",),
        status="issuing",
        source="acme",
        issuer="embedded",
        key_algorithm="ecdsa-p256",
        challenges=(),
        certificate_pem=None,
        chain_pem=None,
        fingerprint=None,
        private_key=None,
        csr=None,
        private_key_exported_at=None,
        kms_key_id=None,
        issued_at=None,
        expires_at=None,
        renew_at=None,
        warned_days=None,
        revocation_asked_at=None,
        is_recheck_asked=False,
        tags={},
        faults=(),
        created_at=now,
        updated_at=now,
    )


async def kill_at(url: str, place: str) -> None:
    """Kill a worker when it has come to a place, and let its lease run out."""
    await be_killed(place, "tests.fault.certificate_worker", url)
    ended = await asyncio.to_thread(end_leases, url)
    assert ended == ([] if place == LEASE else [WORK.name])


@on_both_databases
@pytest.mark.timeout(180)
async def test_a_worker_killed_at_any_step_leaves_no_half_certificate_and_no_half_revocation(
    database: Database, metadata_url: str
) -> None:
    # What SQLite shows of the steps, PostgreSQL would show again; of the ends it is its own.
    places = PLACES if metadata_url.startswith("sqlite") else PLACES[-2:]
    await database.write(add_account, ACME)
    await KeyMaker(PROVIDERS, "local", uuid7).add_missing_platform_keys(database, 0)

    async def show(made: Certificate) -> Certificate:
        found = await database.read(ROWS.find, ACME, made.id)
        assert found is not None
        return found

    async def reach(made: Certificate, status: str) -> Certificate:
        async def is_there() -> bool:
            return (await show(made)).status == status

        async with running(worker(database)):
            await until(is_there)
        return await show(made)

    def revoked(tx: Connection) -> list[int]:
        return [
            entry.serial_number
            for each in embedded.list_authorities(tx)
            for entry in x509.load_der_x509_crl(each.revocation_list)
        ]

    serials = []
    for place in places:
        made = await database.write(
            services.request_certificate, requested(uuid7().rpartition("-")[2]), PROOFS
        )
        await kill_at(metadata_url, place)
        half = await show(made)
        assert (half.status, half.certificate_pem, half.private_key) == ("issuing", None, None)
        issued = await reach(made, "active")
        assert issued.certificate_pem is not None
        assert issued.private_key is not None
        leaf = x509.load_pem_x509_certificate(issued.certificate_pem.encode())
        key = load_pem_private_key(await private_keys(database).open(issued), None)
        assert public_der(key.public_key()) == public_der(leaf.public_key())
        # What can be revoked is what is kept: a certificate that died with its key serves nobody.
        assert len(await database.read(rows.list_issues, ACME, made.id, 0)) == 1

        now = system_clock()
        await database.write(services.revoke_certificate, issued, now, NO_EVENTS)
        await kill_at(metadata_url, place)
        assert (await show(made)).status == "active"
        await reach(made, "revoked")
        serials.append(leaf.serial_number)
        assert await database.read(revoked) == serials  # each once
