"""What of an uploaded certificate, its issuers and signing requests is refused."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from cloudcore.acme import client as acme
from cloudcore.certificate import issuer, keys
from cloudcore.certificate.authority import pem
from cloudcore.certificate.checks import (
    MOST_PEM,
    MOST_REQUEST_PEM,
    check_issued,
    check_signing_request,
    check_upload,
)
from cloudcore.certificate.issuer import CA_REFUSED, AuthorityRefused, Chain
from cloudcore.certificate.keys import is_cheap_to_verify, is_sound, load_private_key
from cloudcore.errors import InvalidInput
from cloudcore.key_pairs import PrivateKey, key_pem, new_private_key
from cloudcore.wire import moment_of

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: Final = [rsa.generate_private_key(65537, 2048) for _ in range(3)]
SHA256_RSA: Final = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
SHA1_RSA: Final = SHA256_RSA[:-1] + b"\x05"
LIVES: Final = {"begins": NOW - timedelta(days=1), "ends": NOW + timedelta(days=1)}


def made(
    number: int,
    *,
    begins: datetime,
    ends: datetime,
    is_sha1: bool,
    is_authority: bool,
) -> x509.Certificate:
    """Return the certificate of a number: the leaf, its issuer, and the root."""
    issuer = min(number + 1, 2)

    def name(of: int) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(of))])

    certificate = (
        x509.CertificateBuilder()
        .subject_name(name(number))
        .issuer_name(name(issuer))
        .public_key(KEYS[number].public_key())
        .serial_number(number + 1)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("up.example.com")]), False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), True)
        .sign(KEYS[issuer], hashes.SHA256())
    )
    if not is_sha1:
        return certificate
    # The library signs with SHA-1 no more, so the certificate only says that it is.
    said = certificate.public_bytes(Encoding.DER).replace(SHA256_RSA, SHA1_RSA)
    return x509.load_der_x509_certificate(said)


def check(**changes: dict[str, Any]) -> None:
    """Check an upload of which some have other fields: `leaf`, `issuer` or `root`."""
    chain = []
    for number, name in enumerate(("leaf", "issuer", "root")):
        fields = {"is_sha1": False, "is_authority": number > 0, **LIVES}
        chain.append(pem(made(number, **{**fields, **changes.get(name, {})})))
    now = int(NOW.timestamp()) * 1_000_000
    found = check_upload(chain[0], "".join(chain[1:]), key_pem(KEYS[0]).decode(), now)
    assert found.chain_pem == chain[1]


OLD: Final = {"begins": NOW - timedelta(days=9), "ends": NOW - timedelta(days=1)}
LATER: Final = {"begins": NOW + timedelta(days=1), "ends": NOW + timedelta(days=9)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"leaf": {"is_sha1": True}}, "certificate_pem: it is signed with sha1"),
        ({"issuer": {"is_sha1": True}}, "chain_pem: its number 1 is signed with sha1"),
        ({"issuer": OLD}, "chain_pem: it has an issuer (number 1) that is not valid now"),
        ({"issuer": LATER}, "chain_pem: it has an issuer (number 1) that is not valid now"),
        (
            {"issuer": {"is_authority": False}},
            "chain_pem: it has an issuer (number 1) that is no authority",
        ),
    ],
)
def test_what_clients_refuse_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        check(**changes)
    assert raised.value.message.startswith(words)


def test_of_a_root_nothing_is_asked_as_clients_have_their_own() -> None:
    check()
    check(root={"is_authority": False, **OLD})


UNEQUAL: Final = (3 << 1998) + 385, (7 << 45) + 23
"""Primes of 2,000 and 48 bits, whose product has 2,048."""


def composed(p: int, q: int, e: int = 65537, **changes: int) -> rsa.RSAPrivateKey:
    """Return a key of two primes, read without a look at its numbers."""
    d = pow(e, -1, (p - 1) * (q - 1))
    parts = {"dmp1": d % (p - 1), "dmq1": d % (q - 1), "iqmp": pow(q, -1, p), **changes}
    numbers = rsa.RSAPrivateNumbers(p, q, d, **parts, public_numbers=rsa.RSAPublicNumbers(e, p * q))
    text = key_pem(numbers.private_key(unsafe_skip_rsa_key_validation=True))
    key = load_private_key(text)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def primes() -> tuple[int, int]:
    numbers = KEYS[0].private_numbers()
    return numbers.p, numbers.q


def test_a_key_whose_primes_are_not_of_one_size_is_refused() -> None:
    p, q = UNEQUAL
    assert (p * q).bit_length() == 2048
    assert not is_sound(composed(p, q))
    assert not is_sound(composed(q, p))
    assert is_sound(composed(*primes()))


def test_a_key_whose_numbers_do_not_fit_each_other_is_refused() -> None:
    p, q = primes()
    sound = KEYS[0].private_numbers()
    for name in ("dmp1", "dmq1", "iqmp"):
        assert not is_sound(composed(p, q, **{name: getattr(sound, name) ^ 2}))
    fermat = 2**39 + 1  # an exponent that no client takes
    while True:
        try:
            long = composed(p, q, fermat)
        except ValueError:  # it has a factor in common with p - 1 or q - 1
            fermat += 2
        else:
            break
    assert not is_sound(long)


def test_a_key_of_what_is_not_prime_is_refused_because_it_does_not_sign() -> None:
    p, q = primes()
    number = p - 2
    while True:
        try:
            if number % 3 == 0:  # the next odd number may be a prime
                key = composed(number, q)
                break
        except ValueError:
            pass
        number -= 2
    assert number.bit_length() == 1024
    assert not is_sound(key)


def pkcs8(algorithm: bytes, content: bytes) -> bytes:
    """Return a PEM of PKCS #8 with an algorithm and its parameters, in DER."""
    body = b"\2\1\0" + element(0x30, algorithm) + element(4, content)
    inner = b64encode(element(0x30, body))
    return b"-----BEGIN PRIVATE KEY-----\n" + inner + b"\n-----END PRIVATE KEY-----\n"


def element(tag: int, content: bytes) -> bytes:
    return bytes([tag, 0x82]) + len(content).to_bytes(2) + content


def number(bits: int) -> bytes:
    return element(
        2, (int.from_bytes(os.urandom(bits // 8)) | 1 | 1 << (bits - 1)).to_bytes(bits // 8 + 1)
    )


@pytest.mark.parametrize(
    "algorithm",
    [
        bytes.fromhex("06072a8648ce380401")
        + element(0x30, number(9992) + number(256) + number(9984)),
        bytes.fromhex("06092a864886f70d010301") + element(0x30, number(9992) + number(8)),
    ],
    ids=["DSA", "DH"],
)
def test_keys_of_other_kinds_are_not_even_read(
    monkeypatch: pytest.MonkeyPatch, algorithm: bytes
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("its numbers were computed with")

    monkeypatch.setattr(keys, "load_pem_private_key", refuse)
    assert load_private_key(pkcs8(algorithm, number(9984))) is None


def test_each_form_of_a_key_is_read_and_one_under_a_password_is_told() -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    for key in (KEYS[0], curve):
        for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
            text = key.private_bytes(Encoding.PEM, form, NoEncryption())
            read = load_private_key(b"Bag Attributes\n" + text.replace(b"\n", b"\r\n"))
            assert read is not None
            assert key_pem(read) == key_pem(key)
    leaf, root = pem(made(0, **PLAIN)), pem(made(2, **PLAIN))
    for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
        locked = KEYS[0].private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"word"))
        with pytest.raises(InvalidInput, match="is under a password"):
            check_upload(leaf, root, locked.decode(), int(NOW.timestamp()) * 1_000_000)


PLAIN: Final[dict[str, Any]] = {**LIVES, "is_sha1": False, "is_authority": True}


def test_issuers_whose_signatures_cost_much_are_refused() -> None:
    public = KEYS[0].public_key()
    assert is_cheap_to_verify(public)
    assert is_cheap_to_verify(ec.generate_private_key(ec.SECP521R1()).public_key())
    modulus = public.public_numbers().n
    assert not is_cheap_to_verify(rsa.RSAPublicNumbers(2**40 + 1, modulus).public_key())
    assert not is_cheap_to_verify(rsa.RSAPublicNumbers(65537, 1 << 8192 | 1).public_key())
    assert not is_cheap_to_verify(dsa.generate_private_key(1024).public_key())
    leaf, issuer = pem(made(0, **PLAIN)), pem(made(1, **PLAIN))
    with pytest.raises(InvalidInput, match="more than 10 certificates"):
        check_upload(leaf, issuer * 11, key_pem(KEYS[0]).decode(), int(NOW.timestamp()) * 1_000_000)


NAMES: Final = x509.SubjectAlternativeName.oid
ODD: Final = {
    "x400Address": x509.UnrecognizedExtension(NAMES, bytes.fromhex("3004 a302 3000")),
    "no names": x509.UnrecognizedExtension(NAMES, bytes.fromhex("0500")),
    "TLS feature 46": x509.UnrecognizedExtension(x509.TLSFeature.oid, bytes.fromhex("3003 02012e")),
}


def request_of(
    *common: str,
    names: x509.ExtensionType | None = None,
    key: PrivateKey,
    digest: hashes.SHA256 | hashes.SHA224 | None = None,
) -> str:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each) for each in common])
    builder = x509.CertificateSigningRequestBuilder(subject)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, digest or hashes.SHA256()).public_bytes(Encoding.PEM).decode()


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    made = new_private_key("ecdsa-p256")
    assert isinstance(made, ec.EllipticCurvePrivateKey)
    return made


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_extensions_that_cannot_be_read_are_the_senders_fault(
    key: ec.EllipticCurvePrivateKey, odd: x509.UnrecognizedExtension
) -> None:
    with pytest.raises(InvalidInput, match="csr_pem"):
        check_signing_request(request_of(names=odd, key=key), None, None)
    nobody = x509.Name([])
    certificate = (
        x509.CertificateBuilder(nobody, nobody, key.public_key(), 1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(odd, critical=False)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(Encoding.PEM).decode()
    with pytest.raises(InvalidInput, match="certificate_pem"):
        check_upload(text, "", key_pem(key).decode(), moment_of(NOW))


AT: Final = b"20600101000000Z"
YEAR_0: Final = b"00000101000000Z"


def spelled(certificate: x509.Certificate, before: bytes, after: bytes) -> x509.Certificate:
    """Return a certificate with other bytes, as its signature is checked by nobody."""
    der = certificate.public_bytes(Encoding.DER)
    assert before in der
    return x509.load_der_x509_certificate(der.replace(before, after))


def test_a_certificate_of_the_year_0_is_the_senders_fault() -> None:
    ends = datetime(2060, 1, 1, tzinfo=UTC)
    life = partial(made, begins=LIVES["begins"], ends=ends, is_sha1=False)
    leaf, signer = life(0, is_authority=False), life(1, is_authority=True)
    private = key_pem(KEYS[0]).decode()
    with pytest.raises(InvalidInput, match=r"certificate_pem: .* dates cannot be read"):
        check_upload(pem(spelled(leaf, AT, YEAR_0)), "", private, moment_of(NOW))
    with pytest.raises(InvalidInput, match=r"chain_pem: .* dates cannot be read"):
        check_upload(pem(leaf), pem(spelled(signer, AT, YEAR_0)), private, moment_of(NOW))


P256: Final = bytes.fromhex("2a8648ce3d030107")


def test_an_authority_that_issues_what_cannot_be_read_has_refused(
    key: ec.EllipticCurvePrivateKey,
) -> None:
    names = x509.SubjectAlternativeName([x509.DNSName("a.corp.example")])
    nobody = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "abc")])

    def issued_for(public: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> bytes:
        certificate = (
            x509.CertificateBuilder(nobody, nobody, public, 1)
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(datetime(2060, 1, 1, tzinfo=UTC))
            .add_extension(names, critical=False)
            .sign(key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.DER)

    request = x509.load_pem_x509_csr(request_of(names=names, key=key).encode())
    good = issued_for(key.public_key())
    odd = [
        Chain(good.replace(AT, YEAR_0), ()),
        Chain(good.replace(P256, P256[:-1] + b"\x7f"), ()),
        Chain(good, (good.replace(b"\x0c\x03abc", b"\x03\x03\x00bc"),)),
        Chain(issued_for(ed25519.Ed25519PrivateKey.generate().public_key()), ()),
    ]
    where = request.public_bytes(Encoding.DER), ["a.corp.example"], moment_of(NOW)
    assert check_issued(Chain(good, ()), *where).certificate == good
    for chain in odd:
        with pytest.raises(AuthorityRefused):
            check_issued(chain, *where)


class NoTexts:
    """The records of a test whose authority checks none."""

    async def withdraw(self) -> None:
        pass


async def test_an_authority_that_answers_with_what_cannot_be_read_has_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    der = made(0, **LIVES, is_sha1=False, is_authority=False).public_bytes(Encoding.DER)
    before, version, after = der.partition(bytes.fromhex("a003020102"))
    told = b64encode(before + version[:-1] + b"\x06" + after).decode()

    async def order(*_: object) -> str:
        return f"-----BEGIN CERTIFICATE-----\n{told}\n-----END CERTIFICATE-----\n"

    monkeypatch.setattr(acme, "order", order)
    directory = acme.Directory("https://ca.example.com/directory", "X")
    key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(issuer.AuthorityUnreachable, match="no certificate"):
        await issuer.AcmeIssuer(directory, key).issue(b"", [], cast("Any", NoTexts()))


def test_a_common_name_of_bits_is_the_senders_fault(key: ec.EllipticCurvePrivateKey) -> None:
    request = x509.load_pem_x509_csr(request_of("abc", key=key).encode())
    spelled = request.public_bytes(Encoding.DER).replace(b"\x0c\x03abc", b"\x03\x03\x00bc")
    text = x509.load_der_x509_csr(spelled).public_bytes(Encoding.PEM).decode()
    with pytest.raises(InvalidInput, match="csr_pem"):
        check_signing_request(text, None, None)


def test_names_that_authorities_refuse_are_refused_at_once(key: ec.EllipticCurvePrivateKey) -> None:
    dotted = x509.SubjectAlternativeName([x509.DNSName("a.corp.example.")])
    with pytest.raises(InvalidInput, match="ends in a dot"):
        check_signing_request(request_of(names=dotted, key=key), None, None)
    # An order of ACME is for the first common name alone.
    with pytest.raises(InvalidInput, match="several common names"):
        check_signing_request(request_of("a.corp.example", "b.corp.example", key=key), None, None)
    one = check_signing_request(request_of("a.corp.example", key=key), None, None)
    assert one.domains == ("a.corp.example",)


OWN: Final = ec.generate_private_key(ec.SECP256R1())
WWW: Final = x509.DNSName("www.corp.example")


def renamed(text: str) -> str:
    """Return a signing request of another name, under the signature of the first."""
    request = x509.load_pem_x509_csr(text.encode()).public_bytes(Encoding.DER)
    changed = x509.load_der_x509_csr(request.replace(b"www", b"win"))
    return changed.public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" " * (MOST_REQUEST_PEM + 1), "is longer than 49152 characters"),
        (
            request_of("www.corp.example", key=ec.generate_private_key(ec.SECP521R1())),
            "has a key that is neither P-256, P-384, RSA 2048 or 4096",
        ),
        (
            request_of("www.corp.example", key=rsa.generate_private_key(65537, 1024)),
            "has a key that is neither P-256, P-384, RSA 2048 or 4096",
        ),
        (
            request_of("www.corp.example", key=OWN, digest=hashes.SHA224()),
            "is not signed with SHA-256, SHA-384 or SHA-512",
        ),
        (renamed(request_of("www.corp.example", key=OWN)), "is not signed by its own key"),
        (request_of(key=OWN), "names no domain; put them into subjectAltName"),
        (
            request_of(names=x509.SubjectAlternativeName([WWW, x509.RFC822Name("a@b.c")]), key=OWN),
            "names something else than domains in subjectAltName",
        ),
        (
            request_of("corp.example", names=x509.SubjectAlternativeName([WWW]), key=OWN),
            "has a common name that is not in its subjectAltName too",
        ),
    ],
    ids=["long", "P-521", "RSA 1024", "SHA-224", "other signer", "no name", "mail", "common name"],
)
def test_a_signing_request_that_no_authority_would_sign_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        check_signing_request(text, None, None)
    assert raised.value.message == f"csr_pem: it {words}"


def test_a_certificate_longer_than_the_limit_is_not_even_read() -> None:
    with pytest.raises(InvalidInput, match="certificate_pem: it is longer than 65536 characters"):
        check_upload(" " * (MOST_PEM + 1), "", "", 0)


@pytest.mark.parametrize(
    ("chain", "domain", "now", "words"),
    [
        (b"rubbish", "up.example.com", NOW, "is no certificate"),
        (None, "other.example.com", NOW, "is for other domains"),
        (None, "up.example.com", LIVES["ends"], "has expired"),
        (None, "up.example.com", NOW, "is for another key"),
    ],
)
def test_of_an_authority_only_the_certificate_that_was_asked_for_is_taken(
    chain: bytes | None, domain: str, now: datetime, words: str
) -> None:
    signer = OWN if words == "is for another key" else KEYS[0]
    request = x509.load_pem_x509_csr(request_of("up.example.com", key=signer).encode())
    leaf = chain or made(0, **PLAIN).public_bytes(Encoding.DER)
    with pytest.raises(AuthorityRefused, match=re.escape(words)) as raised:
        check_issued(Chain(leaf, ()), request.public_bytes(Encoding.DER), [domain], moment_of(now))
    assert raised.value.code == CA_REFUSED
