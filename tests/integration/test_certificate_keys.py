"""Private keys of certificates: sealed under the platform key of their account."""

from __future__ import annotations

import asyncio
import threading

import pytest
from msgspec import structs
from sqlalchemy import bindparam, select, update

from cloudcore.certificate.certificate import Certificate, KeyAlgorithm
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.keys import new_private_key
from cloudcore.certificate.rows import ROWS
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.errors import PlatformError
from cloudcore.jobs.kinds import Done, Next
from cloudcore.key_pairs import PrivateKey
from cloudcore.kms.key import Key
from cloudcore.kms.rows import find_platform_key
from cloudcore.kms.rows import kms_key_versions as versions
from cloudcore.kms.vault import MAX_AGE_SECONDS
from tests.certificates import uploaded
from tests.databases import on_both_databases
from tests.integration.certificates_world import DAY, World, job_of

_OF_KEY = versions.c.key_id == bindparam("of")
_MATERIAL = Statement(select(versions.c.wrapped_material).where(_OF_KEY))
_SET_MATERIAL = Statement(
    update(versions).where(_OF_KEY).values(wrapped_material=bindparam("material"))
)


async def found(world: World, certificate_id: str) -> Certificate:
    """Return the row of a certificate."""
    account = world.served.acme.account_id
    row = await world.served.database.read(ROWS.find, account, certificate_id)
    assert row is not None
    return row


async def platform_key(world: World) -> Key:
    """Return the platform key of acme."""
    key = await world.served.database.read(find_platform_key, world.served.acme.account_id)
    assert key is not None
    return key


async def set_material(world: World, key: Key, material: bytes) -> bytes:
    """Replace the material of a key; return that before. Other material cannot be opened."""

    def change(tx: Connection) -> bytes:
        ((before,),) = tx.rows(_MATERIAL, of=key.id)
        tx.execute(_SET_MATERIAL, of=key.id, material=material)
        return bytes(before)

    return await world.served.database.write(change)


@on_both_databases
async def test_keys_are_sealed_under_the_accounts_key_and_for_their_certificate_alone(
    certified: World,
) -> None:
    keys, key = certified.served.certificates.private_keys, await platform_key(certified)
    issued = await found(certified, (await certified.issued())["id"])
    body = {"name": "up", **uploaded("up.example.com", certified.served.clock())}
    made = (await certified.ask("POST", "/upload", body)).json()["certificate"]
    upload = await found(certified, made["id"])
    assert issued.kms_key_id == upload.kms_key_id == key.id
    assert (await keys.open(upload)).decode() == body["private_key_pem"]
    for moved in (
        structs.replace(issued, private_key=upload.private_key),
        structs.replace(issued, account_id=certified.served.globex.account_id),
    ):
        with pytest.raises(PlatformError):
            await keys.open(moved)


async def test_a_key_that_cannot_be_used_is_a_fault_and_no_authority_signs_meanwhile(
    certified: World,
) -> None:
    renewed, key = await certified.issued("old", "old.acme.test"), await platform_key(certified)
    material = await set_material(certified, key, b"of a provider that is away")
    await certified.work(after=MAX_AGE_SECONDS + 1)
    first = await certified.request("new", "new.acme.test")
    await certified.work()
    shown = await certified.show(first)
    assert shown["status"] == "issuing"
    assert [(each["code"], each["severity"]) for each in shown["faults"]] == [
        ("KEY_UNUSABLE", "error")
    ]
    await certified.work(after=61 * DAY)
    shown = await certified.show(renewed)
    assert shown["status"] == "active"
    assert [each["code"] for each in shown["faults"]] == ["RENEWAL_FAILED"]
    assert "the KMS key: " in shown["faults"][0]["message"]
    issued = certified.authority.issued
    assert (issued.count(("old.acme.test",)), issued.count(("new.acme.test",))) == (1, 0)

    await set_material(certified, key, material)
    await certified.work(after=DAY)
    for each in (first, renewed):
        shown = await certified.show(each)
        assert (shown["status"], shown["faults"]) == ("active", [])


async def test_an_account_that_wants_many_slow_keys_leaves_jobs_to_others(
    certified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four are issued at once, the others come again one after the other."""
    may_end = threading.Event()

    def slow(algorithm: KeyAlgorithm) -> PrivateKey:
        assert may_end.wait(60)
        return new_private_key(algorithm)

    monkeypatch.setattr("cloudcore.certificate.workflow.new_private_key", slow)
    (kind,) = CERTIFICATE.runtime.job_kinds(certified.needs)
    steps = set()
    for number in range(6):
        made = await certified.request(f"c{number}", "www.acme.test", key_algorithm="rsa-2048")
        steps.add(asyncio.ensure_future(kind.step(await job_of(certified, made))))
    try:
        put_off: set[asyncio.Future[Next | Done]] = set()
        while len(put_off) < 2:
            done, steps = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
            put_off |= done
    finally:
        may_end.set()
    outcomes = [each.result() for each in put_off]
    first, second = sorted(each.delay_seconds for each in outcomes if isinstance(each, Next))
    assert 0 < first <= 1 < second <= 2
    issued = await asyncio.gather(*steps)
    assert [each.delay_seconds for each in issued if isinstance(each, Next)] == [0] * 4
