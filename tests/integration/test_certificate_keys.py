"""Private keys of certificates: sealed, given to their owner once, or never here."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_der_x509_csr, load_pem_x509_certificate
from msgspec import structs
from sqlalchemy import bindparam, select, update

from cloudcore.certificate.certificate import Certificate, KeyAlgorithm
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.keys import PrivateKeys, public_der
from cloudcore.certificate.needs import Certificates
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict, PlatformError
from cloudcore.jobs.kinds import Done, Next
from cloudcore.jobs.outbox import outbox
from cloudcore.key_pairs import PrivateKey, new_private_key, signing_request
from cloudcore.kms.key import Key
from cloudcore.kms.rows import find_platform_key
from cloudcore.kms.rows import kms_key_versions as versions
from cloudcore.kms.vault import MAX_AGE_SECONDS
from cloudcore.web.idempotency import idempotency_records
from tests.certificates import uploaded
from tests.databases import on_both_databases
from tests.integration.certificates_world import DAY, World, job_of, stored, upload

_OF_KEY = versions.c.key_id == bindparam("of")
_MATERIAL = Statement(select(versions.c.wrapped_material).where(_OF_KEY))
_SET_MATERIAL = Statement(
    update(versions).where(_OF_KEY).values(wrapped_material=bindparam("material"))
)


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


async def test_keys_are_sealed_under_the_accounts_key_and_for_their_certificate_alone(
    certified: World,
) -> None:
    keys, key = certified.served.certificates.private_keys, await platform_key(certified)
    issued = await stored(certified, await certified.issued())
    body = {"name": "up", **uploaded("up.example.com", certified.served.clock())}
    made = (await certified.ask("POST", "/upload", body)).json()["certificate"]
    upload = await stored(certified, made)
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
    shown = await certified.worked(first)
    assert shown["status"] == "issuing"
    (fault,) = shown["faults"]
    assert (fault["code"], fault["severity"]) == ("KEY_UNUSABLE", "error")
    shown = await certified.worked(renewed, after=61 * DAY)
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
        postponed_until: set[asyncio.Future[Next | Done]] = set()
        while len(postponed_until) < 2:
            done, steps = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
            postponed_until |= done
    finally:
        may_end.set()
    outcomes = [each.result() for each in postponed_until]
    first, second = sorted(each.delay_seconds for each in outcomes if isinstance(each, Next))
    assert 0 < first <= 1 < second <= 2
    issued = await asyncio.gather(*steps)
    assert [each.delay_seconds for each in issued if isinstance(each, Next)] == [0] * 4


SETTINGS = "/v1/certificate-settings"


def csr_of(key: PrivateKey, *domains: str) -> str:
    """Return a signing request in PEM."""
    request = load_der_x509_csr(signing_request(key, domains))
    return request.public_bytes(Encoding.PEM).decode()


async def export(world: World, made: dict[str, Any], **headers: str) -> httpx.Response:
    """Ask for the key of a certificate."""
    return await world.ask("POST", f"/{made['id']}/export-private-key", **headers)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return status and reason of a refusal."""
    return answer.status_code, answer.json()["error"]["params"]["reason"]


async def test_a_signing_request_of_the_owner_is_signed_and_renewed_and_its_key_is_never_here(
    certified: World,
) -> None:
    key = new_private_key("ecdsa-p384")
    body = {"name": "web", "csr_pem": csr_of(key, "WWW.acme.test", "*.acme.test")}
    answer = await certified.ask("POST", "", body)
    assert answer.status_code == 202, answer.text
    made = answer.json()["certificate"]
    assert made["domains"] == ["www.acme.test", "*.acme.test"]
    assert (made["key_algorithm"], made["key_source"]) == ("ecdsa-p384", "owner")
    first = await certified.worked(made)
    second = await certified.worked(made, after=61 * DAY)
    assert first["status"] == second["status"] == "active"
    assert first["fingerprint"] != second["fingerprint"]
    for each in (first, second):
        issued = load_pem_x509_certificate(each["certificate_pem"].encode())
        assert public_der(issued.public_key()) == public_der(key.public_key())
    row = await stored(certified, made)
    assert (row.private_key, row.kms_key_id) == (None, None)
    refused = await export(certified, made)
    assert refusal(refused) == (409, "owner")
    port = Certificates("local", certified.served.certificates.private_keys)
    acme, database = certified.served.acme.account_id, certified.served.database
    with pytest.raises(Conflict, match="with its owner"):
        await database.write(port.hold, acme, "web", "listener")
    assert await port.open(database, acme, made["id"]) is None


async def test_what_is_wrong_with_a_signing_request_is_told_before_anything_is_made(
    certified: World,
) -> None:
    csr = csr_of(new_private_key("ecdsa-p256"), "a.acme.test", "b.acme.test")
    same = {"domains": ["b.acme.test", "A.acme.test."], "key_algorithm": "ecdsa-p256"}
    asked = await certified.ask("POST", "", {"name": "web", "csr_pem": csr, **same})
    assert asked.status_code == 202
    for field, fields in (
        ("csr_pem", {"csr_pem": "no request"}),
        ("csr_pem", {"csr_pem": csr.replace("REQUEST", "RUBBISH")}),
        ("domains", {"csr_pem": csr, "domains": ["a.acme.test"]}),
        ("domains", {"csr_pem": csr, "domains": ["a.acme.test", "b.acme.test", "c.acme.test"]}),
        ("key_algorithm", {"csr_pem": csr, "key_algorithm": "rsa-2048"}),
        ("domains", {}),
        ("domains", {"csr_pem": csr_of(new_private_key("ecdsa-p256"), "no_domain")}),
    ):
        answer = await certified.ask("POST", "", {"name": "other", **fields})
        assert answer.status_code == 400, (fields, answer.text)
        assert answer.json()["error"]["params"]["field"] == field, answer.text
    stranger = csr_of(new_private_key("ecdsa-p256"), "www.example.com")
    waiting = await certified.ask("POST", "", {"name": "other", "csr_pem": stranger})
    assert waiting.json()["certificate"]["status"] == "pending_validation"  # proof as for any


async def test_a_key_made_here_is_given_once_and_again_only_under_its_idempotency_key(
    certified: World,
) -> None:
    made = await certified.issued()
    given = await export(certified, made, **{"Idempotency-Key": "one"})
    assert given.status_code == 200, given.text
    assert given.headers["cache-control"] == "no-store"
    key = load_pem_private_key(given.json()["private_key_pem"].encode(), None)
    issued = load_pem_x509_certificate(made["certificate_pem"].encode())
    assert public_der(key.public_key()) == public_der(issued.public_key())
    assert given.json()["certificate"]["private_key_exported_at"] is not None
    again = await export(certified, made, **{"Idempotency-Key": "one"})
    assert (again.content, again.headers["cache-control"]) == (given.content, "no-store")
    for headers in ({}, {"Idempotency-Key": "two"}):
        refused = await export(certified, made, **headers)
        assert refusal(refused) == (409, "exported")
    # A renewal brings another key, which can be had once too.
    assert (await certified.worked(made, after=61 * DAY))["private_key_exported_at"] is None
    other = await export(certified, made)
    assert other.status_code == 200
    assert other.json()["private_key_pem"] != given.json()["private_key_pem"]


@on_both_databases
async def test_of_two_at_once_one_gets_the_key(certified: World) -> None:
    made = await certified.issued()
    answers = await asyncio.gather(*(export(certified, made) for _ in range(6)))
    assert sorted(each.status_code for each in answers) == [200, 409, 409, 409, 409, 409]


async def test_the_key_is_in_no_event_and_no_record_can_be_read(certified: World) -> None:
    served, token = certified.served, certified.token()
    await certified.tell("certificate.key.exported")
    made = await certified.issued()
    given = await export(certified, made, **{"Idempotency-Key": "one"})
    line = given.json()["private_key_pem"].splitlines()[1]
    told, kept = Statement(select(outbox)), Statement(select(idempotency_records))
    events = await served.database.read(lambda tx: list(tx.rows(told)))
    assert [made["id"] in repr(each) for each in events] == [True]
    assert line not in repr(events)
    assert line not in repr(await served.database.read(lambda tx: list(tx.rows(kept))))
    audit = await served.ask(
        "GET", "/v1/audit-events?action=certificate:ExportPrivateKey", token=token
    )
    (event,) = audit.json()["events"]
    assert event["resources"] == [made["crn"]]
    assert line not in audit.text


@on_both_databases
async def test_a_setting_of_the_account_forbids_exports(certified: World) -> None:
    served, made = certified.served, await certified.issued()

    async def settings(method: str, body: object = None) -> dict[str, Any]:
        answer = await served.ask(method, SETTINGS, body, token=certified.token())
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["certificate_settings"])

    assert await settings("GET") == {"private_key_export": True, "updated_at": None}
    await settings("PATCH", {"private_key_export": False})
    assert not (await settings("PATCH", {}))["private_key_export"]
    refused = await export(certified, made)
    assert refusal(refused) == (403, "export_forbidden")
    await settings("PATCH", {"private_key_export": True})
    assert (await export(certified, made)).status_code == 200


async def test_only_a_live_certificate_with_a_key_made_here_has_one_to_give(
    certified: World,
) -> None:
    made = await certified.request("web", "www.acme.test")
    assert refusal(await export(certified, made)) == (409, "not_issued")
    assert refusal(await export(certified, await upload(certified))) == (409, "uploaded")
    await certified.work()
    assert (await certified.ask("POST", f"/{made['id']}/revoke")).status_code == 202
    assert refusal(await export(certified, made)) == (409, "revoked")
    again = await certified.ask("POST", f"/{made['id']}/challenges/recheck")
    assert refusal(again) == (409, "revoked")


async def test_a_key_that_a_renewal_replaced_meanwhile_is_not_given(
    certified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await certified.issued()
    keys, open_key = certified.served.certificates.private_keys, PrivateKeys.open

    async def open_late(self: PrivateKeys, found: Certificate) -> bytes:
        opened = await open_key(self, found)
        await certified.work(after=61 * DAY)
        return opened

    monkeypatch.setattr(PrivateKeys, "open", open_late)
    assert refusal(await export(certified, made)) == (409, "renewed")
    monkeypatch.undo()
    renewed = await stored(certified, made)
    assert (renewed.status, renewed.private_key_exported_at) == ("active", None)
    given = await export(certified, made)
    assert given.json()["private_key_pem"] == (await keys.open(renewed)).decode()
