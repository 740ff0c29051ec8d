"""The install's own authority as an issuer: a root, and an issuing certificate signed by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple

import sqlalchemy as sa
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from sqlalchemy.dialects.postgresql import insert

from cloudcore.certificate import authority
from cloudcore.certificate.issuer import CA_REFUSED, AuthorityRefused, Chain, TxtRecords
from cloudcore.certificate.keys import algorithm_of, context_of
from cloudcore.certificate.rows import certificate_authorities, certificate_revocations
from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import bound, columns_of, find_all, find_one, given, insert_new
from cloudcore.db.statement import Statement
from cloudcore.files import replace_file
from cloudcore.key_pairs import key_pem, new_private_key, signing_request
from cloudcore.keyring import Keyring
from cloudcore.own_certificate.paths import own_certificate, root_file

Role = Literal["root", "issuing"]
_a = certificate_authorities.c
_r = certificate_revocations.c


class Authority(NamedTuple):
    """A certificate of the install's authority, with its sealed key and revocation list."""

    id: str
    role: Role
    generation: int
    certificate: bytes
    """DER."""
    private_key: bytes
    """The sealed private key."""
    revocation_list: bytes
    """DER."""
    list_number: int
    listed_at: int
    expires_at: int

    def __repr__(self) -> str:
        """Omit the key."""
        return f"Authority({self.role} {self.generation})"

    @property
    def parsed(self) -> x509.Certificate:
        """Return the authority's certificate, parsed."""
        return x509.load_der_x509_certificate(self.certificate)


_rows: Final = columns_of(certificate_authorities, Authority._fields)
_ADD: Final = Statement(
    insert(certificate_authorities)
    .values(bound(Authority._fields))
    .on_conflict_do_nothing(index_elements=["role", "generation"])
)
_LIST: Final = Statement(_rows.order_by(_a.role, _a.generation))
_FIND: Final = Statement(_rows.where(given(_a.id)))
_LOCK: Final = Statement(_rows.where(given(_a.id)).with_for_update())
_SAVE_LIST: Final = Statement(
    sa.update(certificate_authorities)
    .where(_a.id == sa.bindparam("of_id"))
    .values(bound(("revocation_list", "list_number", "listed_at")))
)
_REVOKE: Final = Statement(insert_new(certificate_revocations, certificate_revocations.c.keys()))
_REVOKED: Final = Statement(
    sa.select(_r.serial, _r.revoked_at)
    .where(given(_r.authority_id), _r.expires_at > sa.bindparam("now"))
    .order_by(_r.revoked_at, _r.serial)
)
_FORGET: Final = Statement(
    certificate_revocations.delete().where(
        given(_r.authority_id), _r.expires_at <= sa.bindparam("now")
    )
)


def list_authorities(tx: Connection) -> list[Authority]:
    """Return all authorities, sorted by role, then oldest first."""
    return find_all(tx, Authority, _LIST)


def find_authority(tx: Connection, authority_id: str) -> Authority | None:
    """Return an authority, or None if there is none with this id."""
    return find_one(tx, Authority, _FIND, id=authority_id)


def _lock_authority(tx: Connection, authority_id: str) -> Authority | None:
    """Lock and return an authority, or None; only one process at a time may sign its list."""
    return find_one(tx, Authority, _LOCK, id=authority_id)


AUTHORITIES: Final = "/v1/certificate-authorities"
_LIST_RENEWED: Final = authority.CRL_LIFE / 7
_INSTALL_HEX: Final = 8


@dataclass(frozen=True)
class EmbeddedAuthority:
    """Issues and revokes certificates with the install's own authority; see `Issuer`."""

    name: ClassVar[str] = "embedded"
    checks_dns: ClassVar[bool] = False

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    keyring: Keyring
    url: str
    """Base URL of the authority's files."""

    async def prepare(self) -> None:
        """Make the root and the issuing certificate if they are missing, or expire too soon."""
        await self._issuing()

    async def issue(
        self, csr_der: bytes, domains: Sequence[str], _txt: TxtRecords | None = None
    ) -> Chain:
        """Return a certificate for `domains`, with the key of a signing request.

        Raise `AuthorityRefused` if the request is not signed by its key, or the kind of key is not
        supported.
        """
        request = x509.load_der_x509_csr(csr_der)
        key = request.public_key()
        if not request.is_signature_valid or algorithm_of(key) is None:
            raise AuthorityRefused(
                CA_REFUSED, "the signing request has no key that certificates have"
            )
        assert isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))
        issuing = await self._issuing()
        signer = self._signer(issuing)
        made = authority.issue(signer, domains, key, self.urls(issuing.id), self.clock())
        return Chain(made.public_bytes(Encoding.DER), (issuing.certificate,))

    async def revoke(self, certificate_der: bytes, _reason: str | None) -> None:
        """Add a certificate to the revocation list of the authority that issued it.

        Raise `AuthorityRefused` if this install did not issue it.
        """
        certificate = x509.load_der_x509_certificate(certificate_der)
        for each in await self.database.read(list_authorities):
            if each.role == "issuing" and _has_issued(each, certificate):
                await self.database.write(self._revoke, each.id, certificate)
                return
        raise AuthorityRefused(
            CA_REFUSED, "no authority of this install has issued the certificate"
        )

    async def renew_lists(self) -> None:
        """Re-sign the revocation lists that are a day old, before clients treat them as expired.

        Also re-sign lists dated in the future, made while a clock was ahead: clients reject them.
        """
        for each in await self.database.read(list_authorities):
            if self._is_to_renew(each) and each.expires_at > self.clock():
                await self.database.write(self._sign_list, each.id, if_due=True)

    def urls(self, authority_id: str) -> authority.AuthorityUrls:
        """Return the URLs of an authority's files."""
        base = f"{self.url}{AUTHORITIES}/{authority_id}"
        return authority.AuthorityUrls(f"{base}/certificate", f"{base}/revocation-list")

    def _revoke(self, tx: Connection, authority_id: str, certificate: x509.Certificate) -> None:
        now, ends = self.clock(), authority.microseconds(certificate.not_valid_after_utc)
        # Lock first: otherwise two concurrent lists would each miss the other's entry.
        _lock_authority(tx, authority_id)
        serial = f"{certificate.serial_number:x}"
        added = tx.execute(
            _REVOKE, serial=serial, authority_id=authority_id, revoked_at=now, expires_at=ends
        )
        if added:
            self._sign_list(tx, authority_id)

    def _is_to_renew(self, found: Authority) -> bool:
        """Return True if an authority's revocation list is a day old, or dated in the future."""
        age = timedelta(microseconds=self.clock() - found.listed_at)
        return not -authority.BACKDATED <= age < _LIST_RENEWED

    def _sign_list(self, tx: Connection, authority_id: str, *, if_due: bool = False) -> None:
        """Re-sign an authority's revocation list; with `if_due`, only if `_is_to_renew`."""
        found = _lock_authority(tx, authority_id)
        now = self.clock()
        if found is None or (if_due and not self._is_to_renew(found)):
            return
        tx.execute(_FORGET, authority_id=authority_id, now=now)
        rows = tx.rows(_REVOKED, authority_id=authority_id, now=now)
        revoked = [authority.RevokedCertificate(int(row[0], 16), row[1]) for row in rows]
        number = found.list_number + 1
        made = authority.revocation_list(self._signer(found), revoked, number, now)
        new = {"revocation_list": made, "list_number": number, "listed_at": now}
        tx.execute(_SAVE_LIST, of_id=authority_id, **new)

    async def _issuing(self) -> Authority:
        """Return the issuing authority; create it, and its root, if it is missing."""
        listed = await self.database.read(list_authorities)
        found = self._current("issuing", listed)
        if found is not None:
            return found
        root = self._current("root", listed) or await self._made("root", listed, self._new_root)
        return await self._made("issuing", listed, partial(self._new_issuing, root))

    def _current(self, role: Role, listed: Sequence[Authority]) -> Authority | None:
        """Return the newest listed authority of a role that outlives all it would issue now.

        Return None if there is none. Prefer an authority that is already valid: if one is not, it
        was made while a clock was ahead, or the clock is behind now.
        """
        now = self.clock()
        below = authority.LEAF_LIFE if role == "issuing" else authority.ISSUING_LIFE
        least = now + int(below.total_seconds()) * MICROSECONDS
        fit = [each for each in listed if each.role == role and each.expires_at > least]
        begun = [
            each for each in fit if authority.microseconds(each.parsed.not_valid_before_utc) <= now
        ]
        return next(reversed(begun or fit), None)

    async def _made(
        self, role: Role, listed: Sequence[Authority], make: Callable[[str], authority.Signer]
    ) -> Authority:
        """Add an authority, one generation after `listed`; return the one that is stored.

        `make` signs it; its argument is the new id. All processes that find the authority missing
        add the same generation, so only one insert succeeds.
        """
        before = [each.generation for each in listed if each.role == role]
        made_id, now = self.new_id(), self.clock()
        signer = make(made_id)
        made = Authority(
            id=made_id,
            role=role,
            generation=max(before, default=0) + 1,
            certificate=signer.certificate.public_bytes(Encoding.DER),
            private_key=self.keyring.seal(key_pem(signer.key), context_of(made_id)),
            revocation_list=authority.revocation_list(signer, (), 1, now),
            list_number=1,
            listed_at=now,
            expires_at=authority.microseconds(signer.certificate.not_valid_after_utc),
        )
        await self.database.write(lambda tx: tx.execute(_ADD, **made._asdict()))
        found = await self.database.read(list_authorities)
        return [each for each in found if each.role == role][-1]

    def _new_root(self, made_id: str) -> authority.Signer:
        return authority.new_root(made_id[-_INSTALL_HEX:], self.clock())

    def _new_issuing(self, root: Authority, made_id: str) -> authority.Signer:
        return authority.new_issuing(
            self._signer(root), made_id[-_INSTALL_HEX:], self.urls(root.id), self.clock()
        )

    def _signer(self, found: Authority) -> authority.Signer:
        key = load_pem_private_key(self.keyring.open(found.private_key, context_of(found.id)), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return authority.Signer(found.parsed, key)


def _has_issued(issuing: Authority, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuing.parsed)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


async def write_server_certificate(
    database: Database, embedded: EmbeddedAuthority, names: Sequence[str], folder: Path
) -> None:
    """Issue a certificate for host names and addresses; write it, its key and the root to files.

    Raise `OSError` if a file cannot be written.
    """
    key = new_private_key("ecdsa-p256")
    chain = await embedded.issue(signing_request(key, names), names)
    found = await database.read(list_authorities)
    roots = (each.certificate for each in found if each.role == "root")
    replace_file(root_file(folder), _pem(roots))
    served = key_pem(key) + _pem((chain.certificate, *chain.issuers))
    replace_file(own_certificate(folder).certificate, served)


def _pem(certificates: Iterable[bytes]) -> bytes:
    return "".join(
        authority.pem(x509.load_der_x509_certificate(each)) for each in certificates
    ).encode()
