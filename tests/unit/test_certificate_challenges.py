"""The records that prove control of domains, and when a certificate is renewed."""

from __future__ import annotations

from cloudcore.certificate.certificate import challenges_of, renewal_at
from cloudcore.certificate.domains import DomainGrants, parse_grants

ID = "0189a000-0000-7000-8000-00000000000a"
DOMAINS = ("example.com", "*.example.com", "www.cust.example", "shop.ours.example")


def test_names_end_in_a_dot_and_each_domain_has_one_challenge() -> None:
    made = challenges_of(ID, DOMAINS, "cloud.example.net", (), 7)
    assert [each.domain for each in made] == list(DOMAINS)
    assert made[2].cname_record_name == "_acme-challenge.www.cust.example."
    targets = [each.expected_cname.removesuffix(f".{ID}.acme.cloud.example.net.") for each in made]
    assert targets == ["1", "1", "2", "3"]


def test_a_domain_in_a_zone_of_ours_is_verified_without_its_owner() -> None:
    made = challenges_of(ID, DOMAINS, "cloud.example.net", ("shop.ours.example",), 7)
    assert [each.our_dns for each in made] == [False, False, False, True]
    assert [each.verified_at for each in made] == [None, None, None, 7]
    wild = challenges_of(ID, DOMAINS[:2], "cloud.example.net", ("example.com",), 7)
    assert [each.our_dns for each in wild] == [True, False]


def test_the_nearest_grant_decides_and_a_wildcard_is_not_of_what_others_have_alone() -> None:
    entries = ("corp.example=*", "shop.corp.example=shop", "a.b.corp.example=x", "all.example=*")
    grants = DomainGrants(parse_grants((*entries, "dev.all.example=acme", "dev.all.example=shop")))

    def allowed(handle: str, *domains: str) -> list[bool]:
        return [grants.allow(each, "id", handle) for each in domains]

    names = ("corp.example", "www.corp.example", "notcorp.example", "x.shop.corp.example")
    assert allowed("acme", *names) == [True, True, False, False]
    assert allowed("shop", *names) == [True, True, False, True]
    wild = ("*.corp.example", "*.b.corp.example", "*.c.corp.example", "*.all.example")
    assert allowed("acme", *wild) == [False, False, True, True]
    assert allowed("shop", *wild) == [True, False, True, True]
    assert allowed("id", "*.shop.corp.example") == [False]
    assert allowed("other", "*.all.example", "dev.all.example") == [False, False]


def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left() -> None:
    assert renewal_at(0, 90) == 60
    assert renewal_at(10, 100) == 70
