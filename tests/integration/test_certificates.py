"""Certificates: revocation, stored forms, secrecy of the private key, renewal and events."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from sqlalchemy import select

from cloudcore.audit.rows import audit_events
from cloudcore.certificate.authority import microseconds, new_root
from cloudcore.certificate.certificate import CERTIFICATE
from cloudcore.certificate.embedded import list_authorities, write_server_certificate
from cloudcore.certificate.issuer import (
    CA_REFUSED,
    AuthorityRefused,
    AuthorityUnreachable,
    TxtRecords,
)
from cloudcore.certificate.keys import public_der
from cloudcore.certificate.needs import Certificates
from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.schema import metadata
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict
from cloudcore.jobs.outbox import outbox
from cloudcore.jobs.tables import jobs
from cloudcore.key_pairs import new_private_key, signing_request
from cloudcore.own_certificate.paths import own_certificate, root_file
from cloudcore.own_certificate.renewal import names_in
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit
from cloudcore.serving.tls.files import load_tls
from cloudcore.web.idempotency import idempotency_records
from tests.certificates import uploaded
from tests.databases import on_both_databases
from tests.integration.certificates_world import DAY, Authority, World, codes, stored, upload
from tests.tools import require_tool

ALL_ROWS: Final = [
    Statement(select(table))
    for name, table in metadata.tables.items()
    if name.startswith("certificate") or table in (jobs, outbox, idempotency_records, audit_events)
]
GONE: Final = AuthorityUnreachable("the authority does not answer")


def openssl(folder: Path, *words: str) -> str:
    """Run openssl in a folder; return what it says."""
    ended = subprocess.run(
        [require_tool("openssl"), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return ended.stdout + ended.stderr


def crl_url(record: dict[str, Any]) -> str:
    """Return where the revocation list of a certificate's issuer is."""
    leaf = x509.load_pem_x509_certificate(record["certificate_pem"].encode())
    points = leaf.extensions.get_extension_for_class(x509.CRLDistributionPoints).value
    assert points[0].full_name is not None
    url: str = points[0].full_name[0].value
    return url


async def texts_of(world: World) -> TxtRecords:
    """Return the records of the proof of a certificate."""
    return TxtRecords(
        world.served.database, await stored(world, await world.request("web", "acme.test"))
    )


@on_both_databases
async def test_a_certificate_is_requested_issued_listed_tagged_and_deleted(
    certified: World,
) -> None:
    made = await certified.request("web", "WWW.acme.test", "*.acme.test", tags={"a": "b"})
    account = certified.served.acme.account_id
    assert made["crn"] == f"crn:certificate:local:{account}:certificate/web"
    assert made["domains"] == ["www.acme.test", "*.acme.test"]
    assert (made["status"], made["source"]) == ("issuing", "acme")
    assert made["key_algorithm"] == "ecdsa-p256"
    assert made.keys().isdisjoint({"certificate_pem", "fingerprint", "issued_at", "expires_at"})
    issued = await certified.worked(made)
    assert (issued["status"], issued["faults"], issued["tags"]) == ("active", [], {"a": "b"})
    assert {name: issued[name] for name in ("id", "crn", "domains")} == {
        name: made[name] for name in ("id", "crn", "domains")
    }
    listed = (await certified.ask("GET", "?name=web")).json()
    assert listed["certificates"] == [issued]
    assert (await certified.ask("GET", "?name=other")).json()["certificates"] == []
    path = f"/{made['id']}"
    tagged = (await certified.ask("PATCH", path, {"tags": {"c": "d"}})).json()["certificate"]
    assert tagged["tags"] == {"c": "d"}
    assert (await certified.ask("PATCH", path, {"domains": []})).status_code == 400
    again = await certified.ask("POST", "", {"name": "web", "domains": ["a.acme.test"]})
    assert again.status_code == 409
    assert (await certified.ask("DELETE", path)).status_code == 204
    assert (await certified.ask("GET", path)).status_code == 404


async def test_revoke_answers_202_with_the_state_before_and_get_shows_revoked_later(
    certified: World,
) -> None:
    made = await certified.issued()
    answer = await certified.ask("POST", f"/{made['id']}/revoke")
    assert answer.status_code == 202
    assert answer.json()["certificate"]["status"] == "active"
    assert (await certified.show(made))["status"] == "active"
    assert (await certified.worked(made))["status"] == "revoked"
    # An authority that says "already revoked" is a success: the same again, as after a crash.
    await certified.authority.embedded.revoke(certified.authority.revoked[0], None)
    # Already revoked: 202, and no second call.
    again = await certified.ask("POST", f"/{made['id']}/revoke")
    assert (again.status_code, again.json()["certificate"]["status"]) == (202, "revoked")
    await certified.work()
    assert len(certified.authority.revoked) == 1


async def test_an_unreachable_authority_leaves_it_active_with_a_fault_and_is_asked_again(
    certified: World,
) -> None:
    made = await certified.issued()
    certified.authority.failure = GONE
    assert (await certified.ask("POST", f"/{made['id']}/revoke")).status_code == 202
    await certified.work()
    shown = await certified.worked(made, after=20)
    assert shown["status"] == "active"
    assert codes(shown) == [("REVOCATION_FAILED", "error", 2)]
    fault = shown["faults"][0]
    assert fault["first_at"] < fault["last_at"]
    assert (fault["message"], fault["details"]) == (str(GONE), {})
    refused = await certified.ask("DELETE", f"/{made['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
    certified.authority.failure = None
    shown = await certified.worked(made, after=3600)
    assert (shown["status"], shown["faults"]) == ("revoked", [])
    assert len(certified.authority.revoked) == 1


async def test_a_certificate_of_an_authority_that_this_install_does_not_have_stays_unrevoked(
    certified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = uploaded("up.example.com", certified.served.clock())["certificate_pem"]
    der = x509.load_pem_x509_certificate(stranger.encode()).public_bytes(Encoding.DER)
    with pytest.raises(AuthorityRefused, match="no authority of this install has issued"):
        await certified.authority.embedded.revoke(der, None)
    made = await certified.issued()
    await certified.ask("POST", f"/{made['id']}/revoke")
    monkeypatch.setattr(Authority, "name", "successor")
    shown = await certified.worked(made)
    assert (shown["status"], codes(shown)) == ("active", [("REVOCATION_FAILED", "error", 1)])
    assert "has no authority 'embedded' any more" in shown["faults"][0]["message"]


async def test_files_of_an_authority_that_does_not_exist_are_not_found(certified: World) -> None:
    for path in ("other/certificate", "other/revocation-list"):
        answer = await certified.served.ask("GET", f"/v1/certificate-authorities/{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND"), path


async def test_an_uploaded_certificate_is_revoked_at_once_and_no_authority_is_asked(
    certified: World,
) -> None:
    made = await upload(certified)
    assert (made["status"], made["source"], made["renew_at"]) == ("active", "uploaded", None)
    answer = await certified.ask("POST", f"/{made['id']}/revoke")
    assert (answer.status_code, answer.json()["certificate"]["status"]) == (202, "active")
    assert (await certified.show(made))["status"] == "revoked"
    await certified.work()
    assert certified.authority.revoked == []


async def test_to_revoke_a_certificate_that_is_not_issued_yet_is_409(certified: World) -> None:
    pending = await certified.request("pending", "www.example.com")
    issuing = await certified.request("issuing", "www.acme.test")
    for made in (pending, issuing):
        answer = await certified.ask("POST", f"/{made['id']}/revoke")
        assert answer.status_code == 409
        assert answer.json()["error"]["params"]["status"] == made["status"]


async def test_openssl_verifies_the_chain_and_sees_the_revocation_in_what_anyone_can_read(
    certified: World, tmp_path: Path
) -> None:
    made, other = await certified.issued(), await certified.issued("other", "b.acme.test")
    await certified.ask("POST", f"/{made['id']}/revoke")
    await certified.work()
    leaf = x509.load_pem_x509_certificate(made["certificate_pem"].encode())

    async def read(url: str, media_type: str) -> bytes:
        answer = await certified.served.ask("GET", url)  # as nobody
        assert answer.status_code == 200
        assert answer.headers["content-type"] == media_type
        assert "max-age" in answer.headers["cache-control"]
        return answer.content

    access = leaf.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    issuer = await read(access[0].access_location.value, "application/pkix-cert")
    crl = await read(crl_url(made), "application/pkix-crl")
    root = await read("/v1/certificate-authorities/root", "application/x-pem-file")
    (tmp_path / "crl.der").write_bytes(crl)
    (tmp_path / "root.pem").write_bytes(root)
    openssl(tmp_path, "crl", "-inform", "DER", "-in", "crl.der", "-out", "crl.pem")

    def verify(record: dict[str, Any], *more: str) -> str:
        (tmp_path / "leaf.pem").write_text(record["certificate_pem"])
        (tmp_path / "chain.pem").write_text(record["chain_pem"])
        at = str(certified.served.clock() // MICROSECONDS)
        strictly = ("-x509_strict", "-purpose", "sslserver", "-attime", at)
        chain = ("-CAfile", "root.pem", "-untrusted", "chain.pem")
        return openssl(tmp_path, "verify", *strictly, *chain, *more, "leaf.pem")

    check = ("-crl_check", "-CRLfile", "crl.pem")
    assert verify(made, "-verify_hostname", "www.acme.test").endswith(": OK\n")
    assert "certificate revoked" in verify(made, *check)
    assert verify(other, *check, "-verify_hostname", "b.acme.test").endswith(": OK\n")
    chain = x509.load_pem_x509_certificate(made["chain_pem"].encode())
    assert issuer == chain.public_bytes(Encoding.DER)


async def test_a_revocation_list_is_signed_anew_each_day(certified: World) -> None:
    url = crl_url(await certified.issued())

    async def number() -> int:
        answer = await certified.served.ask("GET", url)
        found = x509.load_der_x509_crl(answer.content)
        assert found.next_update_utc is not None
        assert found.last_update_utc.timestamp() * MICROSECONDS <= certified.served.clock()
        assert found.next_update_utc.timestamp() * MICROSECONDS > certified.served.clock()
        return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number

    embedded = certified.authority.embedded
    assert await number() == 1
    certified.served.clock.now += 23 * 3600 * MICROSECONDS
    await embedded.renew_lists()
    assert await number() == 1
    certified.served.clock.now += 2 * 3600 * MICROSECONDS
    await embedded.renew_lists()
    assert await number() == 2
    # The clock is ahead for a while.
    certified.served.clock.now += 365 * 24 * 3600 * MICROSECONDS
    await embedded.renew_lists()
    assert await number() == 3
    certified.served.clock.now -= 365 * 24 * 3600 * MICROSECONDS
    await embedded.renew_lists()
    assert await number() == 4
    await embedded.renew_lists()
    assert await number() == 4


async def test_the_private_key_is_in_no_response_event_job_or_idempotency_record(
    certified: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    served = certified.served
    secrets = []
    body = {"name": "up", **uploaded("up.example.com", served.clock())}
    key = {"Idempotency-Key": "k"}
    answers = [
        await certified.ask("POST", "/upload", body, **key),
        await certified.ask("POST", "/upload", body, **key),
        await certified.ask("POST", "/upload", {**body, "name": "up2", "chain_pem": "x"}),
    ]
    secrets.append(body["private_key_pem"])
    made = await certified.issued()
    opened = await served.certificates.private_keys.open(await stored(certified, made))
    found = load_pem_private_key(opened, None)
    leaf = x509.load_pem_x509_certificate(made["certificate_pem"].encode())
    assert public_der(found.public_key()) == public_der(leaf.public_key())
    secrets.append(opened.decode())
    ids = (made["id"], answers[0].json()["certificate"]["id"])
    answers += [await certified.ask("GET", path) for path in ("", *(f"/{each}" for each in ids))]
    await served.auditor.flush()
    token = certified.token()
    answers.append(await served.ask("GET", "/v1/audit-events?limit=200", token=token))
    text = caplog.text + "".join(each.text for each in answers)
    text += "".join(map(repr, await served.database.read(everything)))
    assert made["fingerprint"] in text
    for secret in secrets:
        line = secret.splitlines()[1]
        assert line not in text
        assert json.dumps(secret)[30:60] not in text


def everything(tx: Connection) -> list[object]:
    """Return the rows of all tables that could have a key in them."""
    return [tuple(map(str, row)) for statement in ALL_ROWS for row in tx.rows(statement)]


async def test_an_upload_is_for_the_domains_that_it_names(certified: World) -> None:
    body: dict[str, object] = {"name": "up", **uploaded("up.example.com", certified.served.clock())}
    answer = await certified.ask("POST", "/upload", {**body, "domains": ["other.example.com"]})
    assert answer.status_code == 400
    assert answer.json()["error"]["params"]["field"] == "certificate_pem"
    fits = await upload(certified, domains=["UP.example.com"])
    assert fits["domains"] == ["up.example.com"]


async def test_a_renewal_at_a_third_of_life_left_keeps_id_crn_and_challenges_and_has_a_new_key(
    certified: World,
) -> None:
    made = await certified.issued()
    before = await stored(certified, made)
    assert before.certificate_pem is not None
    valid_from = microseconds(
        x509.load_pem_x509_certificate(before.certificate_pem.encode()).not_valid_before_utc
    )
    assert before.issued_at == before.updated_at >= before.created_at > valid_from
    assert before.expires_at is not None
    assert before.renew_at == before.expires_at - (before.expires_at - valid_from) // 3
    assert (await certified.worked(made, after=59 * DAY))["fingerprint"] == made["fingerprint"]
    renewed = await certified.worked(made, after=2 * DAY)
    same = ("id", "crn", "name", "domains", "challenges", "status", "source", "created_at")
    assert {name: renewed[name] for name in same} == {name: made[name] for name in same}
    for name in ("fingerprint", "certificate_pem", "issued_at", "expires_at", "renew_at"):
        assert renewed[name] != made[name]
    old, new = (
        x509.load_pem_x509_certificate(each["certificate_pem"].encode()) for each in (made, renewed)
    )
    assert public_der(old.public_key()) != public_der(new.public_key())
    # To revoke it is to revoke what was served until a moment ago, too.
    await certified.ask("POST", f"/{made['id']}/revoke")
    await certified.work()
    revoked = {x509.load_der_x509_certificate(each) for each in certified.authority.revoked}
    assert revoked == {old, new}


async def test_a_renewal_that_fails_is_a_fault_and_is_tried_until_it_succeeds(
    certified: World,
) -> None:
    made = await certified.issued()
    certified.authority.failure = AuthorityRefused(CA_REFUSED, "too many certificates")
    await certified.work(after=61 * DAY)
    shown = await certified.worked(made, after=120)
    assert (shown["status"], shown["fingerprint"]) == ("active", made["fingerprint"])
    assert codes(shown) == [("RENEWAL_FAILED", "error", 2)]
    await certified.work(after=31 * DAY)  # tokens of before are no longer valid
    assert (await stored(certified, made)).status == "expired"
    certified.authority.failure = None
    await certified.work(after=DAY)
    renewed = await stored(certified, made)
    assert (renewed.status, renewed.faults) == ("active", ())


async def test_a_clock_that_was_ahead_for_a_while_leaves_the_authority_before(
    certified: World,
) -> None:
    served, embedded = certified.served, certified.authority.embedded
    key = new_private_key("ecdsa-p256")
    request = signing_request(key, ["www.acme.test"])
    texts = await texts_of(certified)
    before = await embedded.issue(request, ["www.acme.test"], texts)
    years = 25 * 365 * DAY * MICROSECONDS
    served.clock.now += years
    await embedded.prepare()
    served.clock.now -= years
    after = await embedded.issue(request, ["www.acme.test"], texts)
    assert after.issuers == before.issuers


@on_both_databases
async def test_one_in_use_is_not_deleted_and_what_serves_it_sees_a_renewal(
    certified: World, tmp_path: Path
) -> None:
    made = await certified.issued()
    served, account = certified.served, certified.served.acme.account_id
    database, user = served.database, "crn:lb:local:x:load-balancer/front"
    port = Certificates("local", served.certificates.private_keys)
    for reference in ("web", made["crn"], made["id"]):
        held = await database.write(port.hold, account, reference, user)
        assert (held.id, held.crn, held.name) == (made["id"], made["crn"], "web")
    opened = await port.open(database, account, held.id)
    assert opened is not None
    assert opened.full_chain_pem == made["certificate_pem"] + made["chain_pem"]
    assert opened.private_key_pem.decode() not in repr(opened)
    for name, text in (("c.pem", opened.full_chain_pem.encode()), ("k.pem", opened[-1])):
        (tmp_path / name).write_bytes(text)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "c.pem", tmp_path / "k.pem")
    answer = await certified.ask("DELETE", f"/{made['id']}")
    assert answer.status_code == 409
    assert answer.json()["error"]["params"]["used_by"] == ["crn:lb:local:x:load-balancer/front"]
    await certified.work(after=61 * DAY)
    renewed = await database.read(port.fingerprint, account, held.id)
    assert renewed not in (None, opened.fingerprint)
    await certified.ask("POST", f"/{made['id']}/revoke")
    with pytest.raises(Conflict):
        await database.write(port.hold, account, "web", user)
    await certified.work()
    await database.write(port.release, made["id"], user)
    assert (await certified.ask("DELETE", f"/{made['id']}")).status_code == 204


async def test_an_account_has_at_most_a_thousand(certified: World) -> None:
    assert CERTIFICATE.quota == 1000
    await certified.served.database.write(put_limit, EVERY_ACCOUNT, "certificates", 2, 1)
    await certified.request("a", "a.acme.test")
    answer = await certified.ask("POST", "", {"name": "b", "domains": ["b.acme.test"]})
    assert answer.status_code == 403
    assert answer.json()["error"]["params"]["quota"] == "certificates"


async def test_a_new_issuing_authority_and_a_new_root_are_made_in_time(certified: World) -> None:
    served, embedded = certified.served, certified.authority.embedded
    year = 365 * DAY * MICROSECONDS

    async def roles() -> list[tuple[str, int]]:
        found = await served.database.read(list_authorities)
        return [(each.role, each.generation) for each in found]

    await asyncio.gather(*(embedded.prepare() for _ in range(4)))
    assert await roles() == [("issuing", 1), ("root", 1)]
    key = new_private_key("ecdsa-p256")
    request = signing_request(key, ["www.acme.test"])
    texts = await texts_of(certified)
    old = await embedded.issue(request, ["www.acme.test"], texts)
    served.clock.now += int(4.9 * year)
    new = await embedded.issue(request, ["www.acme.test"], texts)
    assert new.issuers != old.issuers
    assert await roles() == [("issuing", 1), ("issuing", 2), ("root", 1)]
    served.clock.now += int(10.5 * year)
    await asyncio.gather(*(embedded.prepare() for _ in range(4)))
    assert [each for each in await roles() if each[0] == "root"] == [("root", 1), ("root", 2)]
    roots = (await served.ask("GET", "/v1/certificate-authorities/root")).text
    assert roots.count("BEGIN") == 2
    # What the old one has issued can be revoked as long as it could be trusted.
    await embedded.revoke(old.certificate, None)
    foreign = new_root("other", served.clock())
    with pytest.raises(AuthorityRefused):
        await embedded.revoke(foreign.certificate.public_bytes(Encoding.DER), None)


EVENTS: Final = Statement(select(outbox.c.type, outbox.c.payload).order_by(outbox.c.sequence))


async def test_event_rules_name_what_happens_to_certificates(certified: World) -> None:
    await certified.tell("certificate.*")
    made = await certified.issued()
    await certified.ask("POST", f"/{made['id']}/revoke")
    await certified.work()
    told = await certified.served.database.read(events)
    assert [each[0] for each in told] == [
        "certificate.certificate.issued",
        "certificate.certificate.revoked",
    ]
    data = told[0][1]["data"]
    assert data["certificate"] == {name: made[name] for name in ("id", "crn", "name")}
    assert data["fingerprint"] == made["fingerprint"]


@on_both_databases
async def test_the_end_of_an_upload_is_told_thirty_and_seven_days_before(certified: World) -> None:
    await certified.tell("certificate.certificate.expiring")
    made = await upload(certified, "web")  # for 90 days
    await certified.issued("other")
    counts = []
    for days in (59, 2, 1, 20, 1, 1, 8):
        await certified.work(after=days * DAY)
        counts.append(len(await certified.served.database.read(events)))
    assert counts == [0, 1, 1, 1, 2, 2, 2]
    for _, payload in await certified.served.database.read(events):
        data = payload["data"]
        assert (data["status"], data["expires_at"]) == ("active", made["expires_at"])


def events(tx: Connection) -> list[tuple[str, Any]]:
    """Return type and payload of the events in the outbox about the certificate web."""
    told = [(row[0], json.loads(row[1])) for row in tx.rows(EVENTS)]
    return [each for each in told if each[1]["data"]["certificate"]["name"] == "web"]


async def test_that_of_the_server_has_its_names_and_addresses_and_is_of_the_root_beside_it(
    certified: World, tmp_path: Path
) -> None:
    served, names = certified.served, ("localhost", "127.0.0.1", "::1")
    await write_server_certificate(served.database, served.certificates.embedded, names, tmp_path)
    files = own_certificate(tmp_path)
    assert not load_tls(files, served.clock() / MICROSECONDS).is_stand_in
    chain = files.certificate.read_bytes()
    assert names_in(chain) == set(names)
    leaf, issuing = x509.load_pem_x509_certificates(chain)
    (root,) = x509.load_pem_x509_certificates(root_file(tmp_path).read_bytes())
    leaf.verify_directly_issued_by(issuing)
    issuing.verify_directly_issued_by(root)
    assert root.subject == root.issuer
