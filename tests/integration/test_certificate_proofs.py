"""Proofs of domains: their records, our own DNS, and checks before a renewal."""

from __future__ import annotations

from typing import Any, Final

from cloudcore.certificate import rows
from cloudcore.certificate.family import CERTIFICATE
from cloudcore.certificate.issuer import CA_REFUSED, AuthorityRefused, AuthorityUnreachable
from tests.integration.certificates_world import DAY, ZONE, World, codes, job_of, upload

GONE: Final = AuthorityUnreachable("the authority does not answer")


async def test_a_domain_that_nobody_granted_is_refused_where_there_is_no_zone_to_prove_it(
    certified: World,
) -> None:
    served = certified.served
    object.__setattr__(served.certificates.proofs, "zone", "")
    for domain in ("www.example.com", "acme.test.evil.example", "xacme.test"):
        answer = await certified.ask("POST", "", {"name": "x", "domains": ["acme.test", domain]})
        assert answer.status_code == 403, answer.text
        assert answer.json()["error"]["params"]["domain"] == domain
    body = {"name": "x", "domains": ["www.acme.test"]}
    token = served.globex.program_token
    assert (await served.ask("POST", "/v1/certificates", body, token=token)).status_code == 403
    body["domains"] = ["www.everyone.test", "*.everyone.test", "everyone.test"]
    made = await served.ask("POST", "/v1/certificates", body, token=token)
    assert made.status_code == 202
    assert made.json()["certificate"]["challenges"][0]["expected_cname"].endswith(".invalid.")


async def test_names_end_in_a_dot_and_wildcard_and_apex_share_one_record_with_two_values(
    certified: World,
) -> None:
    made = await certified.request("web", "example.com", "*.example.com")
    apex, wildcard = made["challenges"]
    assert [apex["domain"], wildcard["domain"]] == ["example.com", "*.example.com"]
    target = f"1.{made['id']}.acme.{ZONE}."
    for each in (apex, wildcard):
        assert each["cname_record_name"] == "_acme-challenge.example.com."
        assert each["expected_cname"] == target
        assert (each["our_dns"], each["verified"], "verified_at" in each) == (False, False, False)
    certified.names.cnames["_acme-challenge.example.com."] = target
    certified.authority.checks_dns = True
    certified.authority.published = {target: []}
    await certified.work()
    assert certified.authority.published == {
        target: ["proof of *.example.com", "proof of example.com"]
    }
    assert await certified.served.database.read(rows.txt_values, target) == []
    assert (await certified.show(made))["status"] == "active"


async def test_a_domain_waits_for_its_record_and_each_fault_says_what_to_publish(
    certified: World,
) -> None:
    made = await certified.request("web", "www.example.com")
    assert made["status"] == "pending_validation"
    record, target = "_acme-challenge.www.example.com.", f"1.{made['id']}.acme.{ZONE}."

    async def challenge() -> dict[str, Any]:
        shown = await certified.show(made)
        assert shown["faults"] == []
        return dict(shown["challenges"][0])

    await certified.work()
    await certified.work(after=60)
    missing = await challenge()
    assert codes(missing) == [("CNAME_MISSING", "error", 2)]
    assert f"publish {record} CNAME {target}" in missing["faults"][0]["message"]
    certified.names.cnames[record] = "elsewhere.example.net."
    await certified.work(after=3600)
    assert codes(await challenge()) == [("CNAME_MISMATCH", "error", 1)]
    certified.names.fails = True
    await certified.work(after=3600)
    assert codes(await challenge()) == [("DNS_UNREACHABLE", "warning", 1)]
    certified.names.fails = False
    certified.names.cnames[record] = target.upper()
    answer = await certified.ask("POST", f"/{made['id']}/challenges/recheck")
    assert answer.status_code == 202
    assert answer.json()["certificate"]["status"] == "pending_validation"
    await certified.work()  # without a wait
    proved = await challenge()
    assert (proved["faults"], proved["verified"]) == ([], True)
    assert (await certified.show(made))["status"] == "active"


async def test_one_whose_domains_are_not_proved_in_a_week_fails_and_a_recheck_tries_it_anew(
    certified: World,
) -> None:
    made = await certified.request("web", "www.example.com")
    await certified.work()
    assert (await certified.worked(made, after=6 * DAY))["status"] == "pending_validation"
    failed = await certified.worked(made, after=2 * DAY)
    assert failed["status"] == "failed"
    assert [each["code"] for each in failed["challenges"][0]["faults"]] == ["CNAME_MISSING"]
    target = failed["challenges"][0]["expected_cname"]
    certified.names.cnames["_acme-challenge.www.example.com."] = target
    assert (await certified.ask("POST", f"/{made['id']}/challenges/recheck")).status_code == 202
    assert (await certified.worked(made))["status"] == "active"


async def test_our_dns_needs_no_act_of_the_customer_and_a_recheck_sets_verified_at_once(
    certified: World,
) -> None:
    made = await certified.issued("web", "www.acme.test", "*.www.acme.test")
    for each in made["challenges"]:
        assert (each["our_dns"], each["verified"]) == (True, True)
    first = [each["verified_at"] for each in made["challenges"]]
    assert None not in first
    assert (await certified.ask("POST", f"/{made['id']}/challenges/recheck")).status_code == 202
    shown = await certified.worked(made, after=60)
    assert [each["verified_at"] for each in shown["challenges"]] == first
    assert all(each["faults"] == [] for each in shown["challenges"])
    assert certified.names.asked == []
    other = await upload(certified)
    assert (await certified.ask("POST", f"/{other['id']}/challenges/recheck")).status_code == 409


async def test_for_an_authority_that_asks_the_dns_we_answer_for_hosted_domains_themselves(
    certified: World,
) -> None:
    made = await certified.request("web", "www.acme.test")
    record = "_acme-challenge.www.acme.test."
    # It is the platform's.
    object.__setattr__(certified.served.certificates.proofs, "zone", "acme.test")
    certified.authority.checks_dns = True
    certified.authority.published = {record: []}
    await certified.work()
    assert certified.authority.published == {record: ["proof of www.acme.test"]}
    assert (await certified.show(made))["status"] == "active"


async def test_a_domain_whose_record_or_grant_is_gone_is_not_renewed(certified: World) -> None:
    made = await certified.request("cname", "www.example.com")
    target = made["challenges"][0]["expected_cname"]
    certified.names.cnames["_acme-challenge.www.example.com."] = target
    granted = await certified.issued("granted", "www.acme.test")
    assert (await certified.show(made))["status"] == "active"
    certified.names.cnames.clear()
    certified.served.certificates.proofs.grants._grants = ()
    await certified.work(after=61 * DAY)
    for record, code in ((made, "CNAME_MISSING"), (granted, "CA_REFUSED")):
        shown = await certified.show(record)
        assert codes(shown) == [("RENEWAL_FAILED", "error", 1)]
        assert codes(shown["challenges"][0]) == [(code, "error", 1)]


async def checked(certified: World) -> tuple[dict[str, Any], str]:
    """Request a certificate, and find its CNAME; return the certificate and the CNAME's name."""
    made = await certified.request("web", "www.example.com")
    record, target = (
        made["challenges"][0][name] for name in ("cname_record_name", "expected_cname")
    )
    certified.names.cnames[record] = target
    (kind,) = CERTIFICATE.runtime.job_kinds(certified.needs)
    step = await kind.step(await job_of(certified, made))
    assert step.change is not None
    await certified.served.database.write(step.change)
    return made, record


async def test_dns_that_is_away_between_the_check_and_the_issue_lets_nothing_fail(
    certified: World,
) -> None:
    made, _ = await checked(certified)
    certified.names.fails = True
    shown = await certified.worked(made)
    assert (shown["status"], codes(shown)) == ("issuing", [("CA_UNREACHABLE", "warning", 1)])
    assert shown["challenges"][0]["faults"] == []
    assert ("www.example.com",) not in certified.authority.issued
    certified.names.fails = False
    assert (await certified.worked(made, after=3600))["status"] == "active"


async def test_an_authority_that_asks_the_dns_does_not_look_for_us_at_a_renewal(
    certified: World,
) -> None:
    """It knows one account for all of ours: another one's proof would do for it."""
    certified.authority.checks_dns = True
    made = await certified.request("before", "www.example.com")
    record = made["challenges"][0]["cname_record_name"]
    certified.names.cnames[record] = made["challenges"][0]["expected_cname"]
    assert (await certified.worked(made))["status"] == "active"
    certified.names.cnames[record] = "another.acme.cloud.test."
    shown = await certified.worked(made, after=61 * DAY)
    assert len(certified.authority.issued) == 1
    assert codes(shown) == [("RENEWAL_FAILED", "error", 1)]
    assert codes(shown["challenges"][0]) == [("CNAME_MISMATCH", "error", 1)]


async def test_a_domain_that_moved_between_the_check_and_the_issue_is_not_signed(
    certified: World,
) -> None:
    made, record = await checked(certified)
    assert (await certified.show(made))["status"] == "issuing"
    certified.names.cnames[record] = "another.acme.cloud.test."
    shown = await certified.worked(made)
    assert "certificate_pem" not in shown
    assert codes(shown["challenges"][0]) == [("CNAME_MISMATCH", "error", 1)]
    assert ("www.example.com",) not in certified.authority.issued


async def test_an_authority_that_refuses_lets_it_fail_and_one_that_is_away_is_asked_again(
    certified: World,
) -> None:
    certified.authority.failure = GONE
    made = await certified.issued()
    assert (made["status"], codes(made)) == ("issuing", [("CA_UNREACHABLE", "warning", 1)])
    certified.authority.failure = AuthorityRefused(CA_REFUSED, "no certificates for www.acme.test")
    made = await certified.worked(made, after=120)
    assert made["status"] == "failed"
    assert [each["code"] for each in made["faults"]] == ["CA_UNREACHABLE", "CA_REFUSED"]
