"""Make the certificates of the install's own authority: root, issuing and server certificates.

Their profiles follow RFC 5280 as public authorities apply it: `openssl verify -x509_strict` accepts
them. The root signs only issuing certificates and its own revocation list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

from cloudcore.certificate.keys import PublicKey
from cloudcore.clock import MICROSECONDS

ROOT_LIFE: Final = timedelta(days=20 * 365)
ISSUING_LIFE: Final = timedelta(days=5 * 365)
LEAF_LIFE: Final = timedelta(days=90)
CRL_LIFE: Final = timedelta(days=7)
BACKDATED: Final = timedelta(minutes=5)
"""How far certificates and lists are backdated, for clients whose clocks are behind."""
_MOST_COMMON_NAME: Final = 64
"""Maximum characters of a common name (RFC 5280, upper bounds)."""


class AuthorityUrls(NamedTuple):
    """The URLs of an issuer's files, as written into the certificates that it issues."""

    issuer: str
    """URL of the issuing certificate, in DER."""
    crl: str
    """URL of the revocation list, in DER."""


class Signer(NamedTuple):
    """A certificate that signs others, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class RevokedCertificate(NamedTuple):
    """A certificate in a revocation list."""

    serial: int
    revoked_at: int
    """Microseconds since the epoch."""


def new_root(install: str, now: int) -> Signer:
    """Make a self-signed root named after `install`, valid from `now` (µs since the epoch)."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name(f"Entrepot root of {install}")
    builder = _authority(name, name, key.public_key(), now, ROOT_LIFE, path_length=1)
    return Signer(builder.sign(key, hashes.SHA384()), key)


def new_issuing(root: Signer, install: str, urls: AuthorityUrls, now: int) -> Signer:
    """Make an issuing certificate of `install`, signed by `root`, whose files are at `urls`."""
    key = ec.generate_private_key(ec.SECP384R1())
    issuer = root.certificate.subject
    name = _name(f"Entrepot issuing of {install}")
    builder = _authority(name, issuer, key.public_key(), now, ISSUING_LIFE, path_length=0)
    builder = _below(builder, root, urls)
    return Signer(builder.sign(root.key, hashes.SHA384()), key)


def issue(
    issuing: Signer, domains: Sequence[str], key: PublicKey, urls: AuthorityUrls, now: int
) -> x509.Certificate:
    """Issue a server certificate; `domains` are in the form that `check_domains` returns.

    `urls` are the URLs of the issuing certificate's files. The certificate of the install's own
    server may contain IP addresses too.
    """
    fits = len(domains[0]) <= _MOST_COMMON_NAME
    subject = _name(domains[0]) if fits else x509.Name([])
    names = x509.SubjectAlternativeName([_general_name(domain) for domain in domains])
    builder = (
        _started(subject, issuing.certificate.subject, key, now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=not fits)
    )
    return _below(builder, issuing, urls).sign(issuing.key, hashes.SHA384())


def revocation_list(
    issuing: Signer, revoked: Iterable[RevokedCertificate], number: int, now: int
) -> bytes:
    """Return the signed revocation list in DER; each `number` must exceed all earlier ones."""
    begins = _moment(now)
    entries = [
        x509.RevokedCertificateBuilder(each.serial, _moment(each.revoked_at)).build()
        for each in revoked
    ]
    # Passed at once, since adding one entry copies the whole list.
    builder = (
        x509.CertificateRevocationListBuilder(revoked_certificates=entries)
        .issuer_name(issuing.certificate.subject)
        .last_update(begins - BACKDATED)
        .next_update(begins + CRL_LIFE)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_issuer_key(issuing), critical=False)
    )
    return builder.sign(issuing.key, hashes.SHA384()).public_bytes(Encoding.DER)


def pem(certificate: x509.Certificate) -> str:
    """Return a certificate in PEM."""
    return certificate.public_bytes(Encoding.PEM).decode()


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the certificate's DER in lower-case hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def microseconds(moment: datetime) -> int:
    """Convert a time in a certificate to microseconds since the epoch."""
    return int(moment.timestamp()) * MICROSECONDS


def _authority(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: int,
    life: timedelta,
    *,
    path_length: int,
) -> x509.CertificateBuilder:
    return (
        _started(subject, issuer, key, now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )


def _started(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, now: int, life: timedelta
) -> x509.CertificateBuilder:
    begins = _moment(now)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - BACKDATED)
        .not_valid_after(begins + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _below(
    builder: x509.CertificateBuilder, issuer: Signer, urls: AuthorityUrls
) -> x509.CertificateBuilder:
    """Add the issuer's key id, and the URLs of its certificate and revocation list."""
    access = x509.AccessDescription(
        AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier(urls.issuer)
    )
    point = x509.DistributionPoint([x509.UniformResourceIdentifier(urls.crl)], None, None, None)
    return (
        builder.add_extension(_issuer_key(issuer), critical=False)
        .add_extension(x509.AuthorityInformationAccess([access]), critical=False)
        .add_extension(x509.CRLDistributionPoints([point]), critical=False)
    )


def _issuer_key(issuer: Signer) -> x509.AuthorityKeyIdentifier:
    own = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own.value)


def _usage(*, signs: bool = False, digital_signature: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(domain: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(domain))
    except ValueError:
        return x509.DNSName(domain)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MOST_COMMON_NAME])])


def _moment(microseconds_: int) -> datetime:
    return datetime.fromtimestamp(microseconds_ // MICROSECONDS, UTC)
