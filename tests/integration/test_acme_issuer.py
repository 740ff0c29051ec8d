"""Certificates of an ACME authority: Pebble, strict and forgetful, which reads our own zone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.acme.client import Directory
from cloudcore.certificate import rows
from cloudcore.certificate.issuer import (
    AcmeIssuer,
    AuthorityRefused,
    AuthorityUnreachable,
    Issuers,
    TxtRecords,
    account_key,
)
from cloudcore.certificate.needs import CertificateNeeds
from cloudcore.certificate.zone_server import Answerer, Zone, serving_zone
from cloudcore.clock import MICROSECONDS
from cloudcore.key_pairs import new_private_key, signing_request
from registry.settings.certificates import CertificateSettings
from tests.chasing_resolver import ChasingResolver, chasing_resolver
from tests.integration.certificates_world import ZONE, World, open_world, stored
from tests.integration.served_world import open_served
from tests.pebble import Pebble, pebble

pytestmark = pytest.mark.client("pebble")
APEX: Final = "cust.example"
WILD: Final = f"*.{APEX}"
MANY: Final = 25
RECORD: Final = f"_acme-challenge.{APEX}."


@dataclass
class AcmeWorld(World):
    """An install whose certificates come from Pebble."""

    authority_process: Pebble
    resolver: ChasingResolver

    @property
    def issuer(self) -> AcmeIssuer:
        directory = Directory(
            self.authority_process.directory, "SETTING", str(self.authority_process.roots)
        )
        keyring = self.served.keyring
        return AcmeIssuer(directory, account_key(keyring, directory.url), "ops@example.com")

    @property
    def needs(self) -> CertificateNeeds:
        needs = self.served.certificates
        proofs = replace(needs.proofs, checks_dns=True)
        return replace(needs, issuers=Issuers(self.issuer, (needs.embedded,)), proofs=proofs)

    async def prepared(self, name: str, *domains: str) -> dict[str, Any]:
        """Ask for a certificate, and publish what proves its domains."""
        made = await self.request(name, *domains)
        self.publish(made)
        return made

    def publish(self, made: dict[str, Any]) -> None:
        """Set the CNAMEs of a certificate as the owner of its domains does."""
        for each in made["challenges"]:
            self.names.cnames[each["cname_record_name"]] = each["expected_cname"]


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AcmeWorld]:
    """Return an install that tests share: each has domains of its own."""
    async with acme_world(tmp_path_factory.mktemp("acme")) as made:
        yield made


@asynccontextmanager
async def acme_world(folder: Path, *, reuses: int = 50) -> AsyncIterator[AcmeWorld]:
    async with open_world(folder / "data", "") as world:

        async def find(name: str) -> Sequence[str]:
            return await world.served.database.read(rows.txt_values, name)

        zone = Zone(ZONE, ("ns.example",))
        async with (
            serving_zone(Answerer(zone, find), "127.0.0.1", 0) as port,
            chasing_resolver(ZONE, port, world.names.cnames) as (resolver, address),
        ):
            with pebble(folder, address, reuses=reuses) as process:
                yield AcmeWorld(world.served, world.names, world.authority, process, resolver)


async def test_wildcard_and_apex_are_proved_by_two_values_at_once_and_revoked(
    world: AcmeWorld,
) -> None:
    made = await world.prepared("web", WILD, APEX)
    assert {each["cname_record_name"] for each in made["challenges"]} == {RECORD}
    found = await world.worked(made)
    assert found["status"] == "active", found
    certificate = x509.load_pem_x509_certificate(found["certificate_pem"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert set(names.value.get_values_for_type(x509.DNSName)) == {WILD, APEX}
    assert certificate.issuer.rfc4514_string().startswith("CN=Pebble Intermediate")
    assert found["chain_pem"]
    assert world.resolver.asked.count(RECORD) >= 2
    target = made["challenges"][0]["expected_cname"]
    assert await world.served.database.read(rows.txt_values, target) == []

    asked = await world.ask("POST", f"/{made['id']}/revoke")
    assert asked.status_code == 202
    assert (await world.worked(made))["status"] == "revoked"
    # The authority says that it is: which is what was wanted.
    await world.issuer.revoke(certificate.public_bytes(Encoding.DER), "superseded")


async def test_many_domains_are_proved_by_udp_as_each_has_a_name_of_its_own(
    world: AcmeWorld,
) -> None:
    """More values than some seven at one name do not fit into what the authority reads."""
    domains = [f"d{number}.many.example" for number in range(MANY)]
    made = await world.prepared("many", *domains)
    assert len({each["expected_cname"] for each in made["challenges"]}) == MANY
    found = await world.worked(made)
    assert (found["status"], found["domains"]) == ("active", domains), found


async def test_a_record_that_leads_nowhere_is_told_for_its_domain(world: AcmeWorld) -> None:
    made = await world.request("half", "there.example", "nowhere.example")
    challenge = made["challenges"][0]
    world.names.cnames[challenge["cname_record_name"]] = challenge["expected_cname"]
    certificate = await stored(world, made)
    csr = signing_request(new_private_key("ecdsa-p256"), certificate.domains)
    texts = TxtRecords(world.served.database, certificate)
    with pytest.raises(AuthorityRefused) as raised:
        await world.issuer.issue(csr, certificate.domains, texts)
    assert raised.value.code == "CNAME_MISSING"
    assert [(each.domain, each.code) for each in raised.value.domains] == [
        ("nowhere.example", "CNAME_MISSING")
    ]
    found = await world.served.database.read(rows.txt_values, challenge["expected_cname"])
    assert found == []


async def test_what_another_account_has_proved_is_no_proof_for_this_one(tmp_path: Path) -> None:
    """The authority knows one account for all of ours, and here asks for no proof twice."""
    async with acme_world(tmp_path, reuses=100) as world:
        served, path = world.served, "/v1/certificates"
        before = await world.prepared("before", APEX)
        await world.work()
        first = await stored(world, before)
        assert first.status == "active"
        assert first.renew_at is not None

        # The domain is another account's from now on.
        body, token = {"name": "web", "domains": [APEX]}, served.globex.program_token
        made = (await served.ask("POST", path, body, token=token)).json()["certificate"]
        world.names.cnames[RECORD] = made["challenges"][0]["expected_cname"]
        later = await world.request("later", APEX)
        asked = world.resolver.asked.count(RECORD)
        await world.work()
        theirs = await served.ask("GET", f"{path}/{made['id']}", token=token)
        assert theirs.json()["certificate"]["status"] == "active"
        assert world.resolver.asked.count(RECORD) == asked  # so it would sign for anybody

        refused = await stored(world, later)
        assert refused.status == "pending_validation"
        assert [(each.subject, each.code) for each in refused.faults] == [(APEX, "CNAME_MISMATCH")]
        await world.work(after=(first.renew_at - served.clock()) / MICROSECONDS + 1)
        renewed = await stored(world, before)
        assert renewed.fingerprint == first.fingerprint
        assert {(each.subject, each.code) for each in renewed.faults} == {
            (APEX, "CNAME_MISMATCH"),
            ("", "RENEWAL_FAILED"),
        }


async def test_the_settings_name_the_authority(tmp_path: Path) -> None:
    """What the install's own authority has issued is still revoked by it."""
    directory = "https://ca.example.com/directory"
    chosen = CertificateSettings(
        certificate_acme_directory=directory, certificate_acme_terms="agree"
    )
    async with open_served(tmp_path / "data", certificate_zone=ZONE, certificates=chosen) as served:
        issuers = served.certificates.issuers
        assert issuers.current.name == "acme"
        assert issuers.named("embedded") is served.certificates.embedded
        assert served.certificates.proofs.checks_dns


async def test_a_directory_out_of_reach_is_asked_again_later(tmp_path: Path) -> None:
    async with open_world(tmp_path / "data", "") as world:
        keyring = world.served.keyring
        for url, words in (
            ("https://127.0.0.1:9/dir", "Connect call failed|refused"),
            ("https://nobody.invalid/dir", "cannot be resolved"),
        ):
            issuer = AcmeIssuer(Directory(url, "SETTING"), account_key(keyring, url))
            with pytest.raises(AuthorityUnreachable, match=words):
                await issuer.revoke(b"0", None)


def owner_request(common: str, *names: str, extensions: Sequence[x509.ExtensionType] = ()) -> str:
    """Return the signing request of an owner, in PEM."""
    subject = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common)] if common else []
    builder = x509.CertificateSigningRequestBuilder(x509.Name(subject))
    spelled = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    for each in (spelled, *extensions):
        builder = builder.add_extension(each, critical=False)
    made = builder.sign(new_private_key("ecdsa-p256"), hashes.SHA256())
    return made.public_bytes(Encoding.PEM).decode()


OF_OWNERS: Final = (
    ("A.Own.Example", ("a.own.example",)),
    ("", ("B.Own.Example", "a.OWN.example", "*.Own.example")),
    ("A.own.example", ("b.own.example", "a.OWN.example", "a.own.example")),
)


async def test_the_request_of_an_owner_is_issued_whatever_the_case_and_order_of_its_names(
    world: AcmeWorld,
) -> None:
    must_staple = x509.TLSFeature([x509.TLSFeatureType.status_request])
    for number, (common, names) in enumerate(OF_OWNERS):
        text = owner_request(common, *names, extensions=[must_staple])
        asked = await world.ask("POST", "", {"name": f"own-{number}", "csr_pem": text})
        assert asked.status_code == 202, asked.text
        made = asked.json()["certificate"]
        world.publish(made)
        found = await world.worked(made)
        assert found["status"] == "active", found
        assert found["domains"] == list(dict.fromkeys(name.lower() for name in names))
        assert found["key_source"] == "owner"
