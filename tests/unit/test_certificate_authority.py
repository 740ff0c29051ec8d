"""The embedded authority: openssl accepts what it makes; and the records that prove domains."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from cloudcore.acme import client as acme
from cloudcore.certificate.authority import (
    AuthorityUrls,
    RevokedCertificate,
    Signer,
    fingerprint,
    issue,
    new_issuing,
    new_root,
    pem,
    revocation_list,
)
from cloudcore.certificate.certificate import KeyAlgorithm, challenges_of, renewal_at
from cloudcore.certificate.checks import check_upload
from cloudcore.certificate.domains import DomainGrants, check_domains, parse_grants
from cloudcore.certificate.issuer import (
    AcmeIssuer,
    AuthorityRefused,
    AuthorityUnreachable,
    TxtRecords,
)
from cloudcore.clock import MICROSECONDS, system_clock
from cloudcore.errors import InvalidInput
from cloudcore.key_pairs import key_pem, new_private_key
from tests.soak import times
from tests.tools import require_tool

URLS = AuthorityUrls("http://ca.example.com/issuer", "http://ca.example.com/crl")
NOW = system_clock()
DOMAINS = ("www.example.com", "*.shop.example.com")


@pytest.fixture(scope="module")
def root() -> Signer:
    return new_root("tests", NOW)


@pytest.fixture(scope="module")
def issuing(root: Signer) -> Signer:
    return new_issuing(root, "tests", URLS, NOW)


def made(issuing: Signer, algorithm: KeyAlgorithm = "ecdsa-p256") -> tuple[x509.Certificate, str]:
    """Return a certificate for `DOMAINS`, and its key in PEM."""
    key = new_private_key(algorithm)
    return issue(issuing, DOMAINS, key.public_key(), URLS, NOW), key_pem(key).decode()


def verify(folder: Path, root: Signer, issuing: Signer, leaf: x509.Certificate, *more: str) -> str:
    """Return what openssl says of a chain."""
    files = {"root": pem(root.certificate), "chain": pem(issuing.certificate), "leaf": pem(leaf)}
    for name, text in files.items():
        (folder / name).write_text(text)
    ended = subprocess.run(
        [
            *(require_tool("openssl"), "verify", "-x509_strict", "-purpose", "sslserver"),
            *("-CAfile", str(folder / "root"), "-untrusted", str(folder / "chain"), *more),
            str(folder / "leaf"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("algorithm", ["ecdsa-p256", "ecdsa-p384", "rsa-2048"])
def test_openssl_accepts_the_chain(
    root: Signer, issuing: Signer, tmp_path: Path, algorithm: KeyAlgorithm
) -> None:
    leaf, _ = made(issuing, algorithm)
    for host in ("www.example.com", "a.shop.example.com"):
        shown = verify(tmp_path, root, issuing, leaf, "-verify_hostname", host)
        assert shown.endswith(": OK\n"), shown
    assert "OK" not in verify(tmp_path, root, issuing, leaf, "-verify_hostname", "example.com")


def test_a_domain_too_long_for_a_common_name_is_a_name_all_the_same(
    root: Signer, issuing: Signer, tmp_path: Path
) -> None:
    domain = f"{'a' * 60}.{'b' * 60}.example.com"
    key = new_private_key("ecdsa-p256")
    leaf = issue(issuing, (domain,), key.public_key(), URLS, NOW)
    shown = verify(tmp_path, root, issuing, leaf, "-verify_hostname", domain)
    assert shown.endswith(": OK\n"), shown


def test_an_upload_is_kept_as_leaf_chain_without_root_and_fingerprint(
    root: Signer, issuing: Signer
) -> None:
    leaf, key = made(issuing)
    chain = pem(issuing.certificate) + pem(root.certificate)
    checked = check_upload(pem(leaf), chain, key, NOW)
    assert checked.certificate_pem == pem(leaf)
    assert checked.chain_pem == pem(issuing.certificate)
    assert checked.fingerprint == fingerprint(leaf)
    assert checked.fingerprint == sha256(leaf.public_bytes(Encoding.DER)).hexdigest()
    assert checked.domains == DOMAINS
    assert checked.key_algorithm == "ecdsa-p256"
    assert key.splitlines()[1] not in repr(checked)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda leaf, chain, key, other: (leaf, chain, other), "is not the key of certificate_pem"),
        (lambda leaf, chain, key, other: (leaf, leaf, key), "chain_pem: it is out of order"),
        (lambda leaf, chain, key, other: (leaf + leaf, chain, key), "it holds several"),
        (lambda leaf, chain, key, other: (key, chain, key), "certificate_pem: it is no"),
        (lambda leaf, chain, key, other: (leaf, "x", key), "chain_pem: it is no certificate"),
        (lambda leaf, chain, key, other: (leaf, chain, leaf), "private_key_pem: it is no private"),
        (lambda leaf, chain, key, other: ("", chain, key), "certificate_pem: it is no certificate"),
    ],
)  # fmt: skip
def test_an_upload_that_does_not_fit_is_refused_and_its_key_not_shown(
    issuing: Signer, change: Callable[..., tuple[str, str, str]], words: str
) -> None:
    leaf, key = made(issuing)
    _, other = made(issuing)
    certificate, chain, key_pem = change(pem(leaf), pem(issuing.certificate), key, other)
    with pytest.raises(InvalidInput) as raised:
        check_upload(certificate, chain, key_pem, NOW)
    assert words in str(raised.value)
    assert key.splitlines()[1] not in str(raised.value)


def test_an_upload_out_of_its_time_is_refused(issuing: Signer) -> None:
    leaf, key = made(issuing)
    year = 365 * 24 * 3600 * MICROSECONDS
    for now, words in ((NOW + year, "has expired"), (NOW - year, "is not valid yet")):
        with pytest.raises(InvalidInput, match=words):
            check_upload(pem(leaf), pem(issuing.certificate), key, now)


def test_domains_are_lowered_and_duplicates_removed() -> None:
    found = check_domains(
        ["WWW.Example.com", "www.example.com.", "*.example.com", "xn--bcher-kva.de"]
    )
    assert found == ("www.example.com", "*.example.com", "xn--bcher-kva.de")


@pytest.mark.parametrize(
    "domain",
    [
        *("", "localhost", "a.*.example.com", "*.*.example.com", "w*.example.com", "*.com", "*"),
        *("-a.example.com", "a-.example.com", "a_b.example.com", "127.0.0.1", "[::1]", "bücher.de"),
        "ban\N{KELVIN SIGN}.example.com",
        *("a..example.com", f"{'a' * 64}.example.com", ".".join(["a" * 50] * 6), "a.example.com\n"),
    ],
)
def test_malformed_domains_are_refused(domain: str) -> None:
    with pytest.raises(InvalidInput):
        check_domains([domain])


def test_at_most_100_domains() -> None:
    domains = [f"a{number}.example.com" for number in range(101)]
    assert len(check_domains(domains[:100])) == 100
    for count in ([], domains):
        with pytest.raises(InvalidInput, match="1 to 100 domains"):
            check_domains(count)


def test_a_revocation_list_holds_for_clients_whose_clocks_are_a_little_behind(
    issuing: Signer,
) -> None:
    revoked = [RevokedCertificate(serial, NOW) for serial in range(1, 4)]
    found = x509.load_der_x509_crl(revocation_list(issuing, revoked, 2, NOW))
    assert [each.serial_number for each in found] == [1, 2, 3]
    assert found.is_signature_valid(issuing.key.public_key())
    assert found.last_update_utc == issuing.certificate.not_valid_before_utc


@pytest.mark.parametrize(
    ("primes", "words"),
    [
        ((3, 5), "not the key of"),
        ((2**2203 - 1, 2**2281 - 1), "not the key of"),
        (None, "no sound key"),
    ],
)
def test_the_key_of_an_upload_is_checked_only_if_it_is_small(
    issuing: Signer, primes: tuple[int, int] | None, words: str
) -> None:
    """To see whether numbers are primes can stop a worker for minutes."""
    key = rsa.generate_private_key(65537, 2048)
    leaf = pem(issue(issuing, DOMAINS, key.public_key(), URLS, NOW))
    modulus = primes[0] * primes[1] if primes else key.public_key().public_numbers().n
    numbers = [0, modulus, 65537, 7, *(primes or (3, 5)), 1, 1, 1]
    with pytest.raises(InvalidInput, match=words):
        check_upload(leaf, "", rsa_pem(numbers), NOW)
    with pytest.raises(InvalidInput, match="longer than 4096"):
        check_upload(leaf, "", rsa_pem([0, *[2**44497 - 1] * 2, 3, 3, 3, 1, 1, 1]), NOW)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_a_key_of_another_kind_is_refused(issuing: Signer) -> None:
    """OpenSSL cannot say what is wrong with this one, of Diffie-Hellman in a large group."""
    leaf, _ = made(issuing)
    group = der(
        0x30, der(0x06, bytes.fromhex("2a864886f70d010301")), der(0x30, *integers(2**11213 - 1, 2))
    )
    key = der(0x30, *integers(0), group, der(0x04, *integers(3)))
    with pytest.raises(InvalidInput, match="no private key"):
        check_upload(pem(leaf), "", armored("PRIVATE KEY", key), NOW)


def rsa_pem(numbers: list[int]) -> str:
    """Return a key of PKCS #1, whatever its numbers are."""
    return armored("RSA PRIVATE KEY", der(0x30, *integers(*numbers)))


def armored(kind: str, content: bytes) -> str:
    body = base64.encodebytes(content).decode()
    return f"-----BEGIN {kind}-----\n{body}-----END {kind}-----\n"


def integers(*numbers: int) -> list[bytes]:
    return [der(0x02, each.to_bytes(each.bit_length() // 8 + 1)) for each in numbers]


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content).to_bytes(2)
    return (
        bytes([tag, 0x82]) + size + content
        if len(content) > 127
        else bytes([tag, size[1]]) + content
    )


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_an_upload_with_a_changed_byte_is_refused_or_taken_and_never_an_error(
    issuing: Signer,
) -> None:
    leaf, key = made(issuing)
    chance = random.Random(7)
    parts = [leaf.public_bytes(Encoding.DER), issuing.certificate.public_bytes(Encoding.DER)]
    taken = 0
    count = times(1000)
    for number in range(count):
        texts = []
        for index, der in enumerate(parts):
            changed = bytearray(der)
            if number % 2 == index:
                for _ in range(chance.randint(1, 3)):
                    changed[chance.randrange(len(changed))] = chance.randrange(256)
            body = base64.encodebytes(bytes(changed)).decode()
            texts.append(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
        try:
            check_upload(texts[0], texts[1], key, NOW)
        except InvalidInput:
            continue
        taken += 1
    assert taken < count // 2  # those of the leaf are not: its issuer has not signed them


ID = "0189a000-0000-7000-8000-00000000000a"
PROVED = ("example.com", "*.example.com", "www.cust.example", "shop.ours.example")


def test_names_end_in_a_dot_and_each_domain_has_one_challenge() -> None:
    made = challenges_of(ID, PROVED, "cloud.example.net", (), 7)
    assert [each.domain for each in made] == list(PROVED)
    assert made[2].cname_record_name == "_acme-challenge.www.cust.example."
    targets = [each.expected_cname.removesuffix(f".{ID}.acme.cloud.example.net.") for each in made]
    assert targets == ["1", "1", "2", "3"]


def test_a_domain_in_a_zone_of_ours_is_verified_without_its_owner() -> None:
    made = challenges_of(ID, PROVED, "cloud.example.net", ("shop.ours.example",), 7)
    assert [each.our_dns for each in made] == [False, False, False, True]
    assert [each.verified_at for each in made] == [None, None, None, 7]
    wild = challenges_of(ID, PROVED[:2], "cloud.example.net", ("example.com",), 7)
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


@pytest.mark.parametrize(
    ("program", "failure", "words"),
    [
        ("exit 0", AuthorityUnreachable, "the process that asks ended in the middle"),
        ("exec sleep 600", AuthorityUnreachable, "it did not end within 0.2 seconds"),
        (
            """echo '{"chain":"rubbish"}'; cat""",
            AuthorityUnreachable,
            "it answered with no certificate",
        ),
        (
            """echo '{"refused":["order","limit",[["a.example","caa","CAA forbids it"]]]}'; cat""",
            AuthorityRefused,
            "CA_REFUSED",
        ),
        (
            """echo '{"refused":["order","no",[["a.example","dns","NXDOMAIN"]]]}'; cat""",
            AuthorityRefused,
            "CNAME_MISSING",
        ),
    ],
    ids=["killed", "slow", "rubbish", "refused", "no record"],
)
async def test_whatever_an_authority_does_its_proofs_are_withdrawn_and_the_failure_is_named(
    monkeypatch: pytest.MonkeyPatch, program: str, failure: type[Exception], words: str
) -> None:
    monkeypatch.setattr(acme, "_CHILD", ("sh", "-c", program))
    monkeypatch.setattr(acme, "MOST_SECONDS", 0.2 if program == "exec sleep 600" else 30)
    texts = AsyncMock(TxtRecords)
    directory = acme.Directory("https://ca.example/directory", "SETTING")
    issuer = AcmeIssuer(directory, ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(failure) as raised:
        await issuer.issue(b"csr", ["a.example"], texts)
    told = raised.value.code if isinstance(raised.value, AuthorityRefused) else str(raised.value)
    assert told == words
    texts.withdraw.assert_awaited_once_with()
