"""The install's own authority as an issuer: a root, and one below it that signs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from cloudcore.certificate import authority, authority_rows
from cloudcore.certificate.authority import (
    BACKDATED,
    CRL_LIFE,
    ISSUING_LIFE,
    LEAF_LIFE,
    Places,
    Signer,
    microseconds,
    revocation_list,
)
from cloudcore.certificate.authority_rows import Authority, Role
from cloudcore.certificate.issuer import CA_REFUSED, Chain, PublishTxt, Refused
from cloudcore.certificate.keys import algorithm_of, private_pem
from cloudcore.certificate.sealing import open_key, seal_key
from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.keyring import Keyring

EMBEDDED: Final = "embedded"
AUTHORITIES: Final = "/v1/certificate-authorities"
_LIST_RENEWED: Final = CRL_LIFE / 7
_INSTALL_HEX: Final = 8


class EmbeddedAuthority:
    """Issues and revokes with the authority of the install; see `Issuer`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        new_id: Callable[[], str],
        keyring: Keyring,
        url: str,
    ) -> None:
        """Use the authority in `database`; clients find its files under `url`."""
        self._database = database
        self._clock = clock
        self._new_id = new_id
        self._keyring = keyring
        self._url = url

    @property
    def name(self) -> str:
        """Return its word."""
        return EMBEDDED

    @property
    def checks_dns(self) -> bool:
        """Return False: this authority looks up no records."""
        return False

    async def prepare(self) -> None:
        """Make the root and the issuing authority if there are none, or theirs end too soon."""
        await self._issuing()

    async def issue(self, csr_der: bytes, domains: Sequence[str], _txt: PublishTxt) -> Chain:
        """Return a certificate for `domains`, with the key of a signing request.

        Raises:
            Refused: the request is not signed by its key, or has a key of another kind.

        """
        request = x509.load_der_x509_csr(csr_der)
        key = request.public_key()
        if not request.is_signature_valid or algorithm_of(key) is None:
            raise Refused(CA_REFUSED, "the signing request has no key that certificates have")
        assert isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))
        issuing = await self._issuing()
        signer = self._signer(issuing)
        made = authority.issue(signer, domains, key, self.places(issuing.id), self._clock())
        return Chain(made.public_bytes(Encoding.DER), (issuing.certificate,))

    async def revoke(self, certificate_der: bytes, _reason: str | None) -> None:
        """Put a certificate into the list of the authority that issued it.

        Raises:
            Refused: none here did.

        """
        certificate = x509.load_der_x509_certificate(certificate_der)
        for each in await self._database.read(authority_rows.list_authorities):
            if each.role == "issuing" and _has_issued(each, certificate):
                await self._database.write(self._revoke, each.id, certificate)
                return
        raise Refused(CA_REFUSED, "no authority of this install has issued the certificate")

    async def renew_lists(self) -> None:
        """Sign the revocation lists anew that are a day old, before clients hold them for old.

        Also those of a clock that was ahead: for clients, they have not begun.
        """
        for each in await self._database.read(authority_rows.list_authorities):
            if self._is_to_renew(each) and each.expires_at > self._clock():
                await self._database.write(self._list_anew, each.id, if_due=True)

    def places(self, authority_id: str) -> Places:
        """Return where clients find the files of an authority."""
        base = f"{self._url}{AUTHORITIES}/{authority_id}"
        return Places(f"{base}/certificate", f"{base}/revocation-list")

    def _revoke(self, tx: Connection, authority_id: str, certificate: x509.Certificate) -> None:
        now, ends = self._clock(), microseconds(certificate.not_valid_after_utc)
        # The lock comes first: else two lists at once would miss one another's entry.
        authority_rows.lock_authority(tx, authority_id)
        serial = certificate.serial_number
        if authority_rows.add_revocation(tx, authority_id, serial, now, ends):
            self._list_anew(tx, authority_id)

    def _is_to_renew(self, found: Authority) -> bool:
        """Return True if the revocation list of an authority is a day old, or has not begun."""
        age = timedelta(microseconds=self._clock() - found.listed_at)
        return not -BACKDATED <= age < _LIST_RENEWED

    def _list_anew(self, tx: Connection, authority_id: str, *, if_due: bool = False) -> None:
        """Sign the revocation list of an authority; with `if_due`, only if it is to be renewed."""
        found = authority_rows.lock_authority(tx, authority_id)
        now = self._clock()
        if found is None or (if_due and not self._is_to_renew(found)):
            return
        authority_rows.forget_revoked(tx, authority_id, now)
        revoked = authority_rows.list_revoked(tx, authority_id, now)
        number = found.list_number + 1
        made = revocation_list(self._signer(found), revoked, number, now)
        authority_rows.save_list(
            tx, found._replace(revocation_list=made, list_number=number, listed_at=now)
        )

    async def _issuing(self) -> Authority:
        """Return the authority that signs certificates; make what is missing."""
        listed = await self._database.read(authority_rows.list_authorities)
        found = self._current("issuing", listed)
        if found is not None:
            return found
        root = self._current("root", listed) or await self._made("root", listed, self._new_root)
        return await self._made("issuing", listed, lambda made_id: self._new_issuing(root, made_id))

    def _current(self, role: Role, listed: Sequence[Authority]) -> Authority | None:
        """Return the newest authority if it lives longer than what it issues now.

        One that has not begun was made while a clock was ahead, or the clock is behind now: one
        before it that has begun is better, if there is such a one.
        """
        now = self._clock()
        below = LEAF_LIFE if role == "issuing" else ISSUING_LIFE
        least = now + int(below.total_seconds()) * MICROSECONDS
        fit = [each for each in listed if each.role == role and each.expires_at > least]
        begun = [each for each in fit if _begins_at(each) <= now]
        return next(reversed(begun or fit), None)

    async def _made(
        self, role: Role, listed: Sequence[Authority], make: Callable[[str], Signer]
    ) -> Authority:
        """Add an authority after those that are `listed`; return the one that is there then.

        All who found the same one missing add the same generation, so only one of them does.
        """
        before = [each.generation for each in listed if each.role == role]
        made_id, now = self._new_id(), self._clock()
        signer = make(made_id)
        made = Authority(
            id=made_id,
            role=role,
            generation=max(before, default=0) + 1,
            certificate=signer.certificate.public_bytes(Encoding.DER),
            private_key=seal_key(self._keyring, made_id, private_pem(signer.key)),
            revocation_list=revocation_list(signer, (), 1, now),
            list_number=1,
            listed_at=now,
            expires_at=microseconds(signer.certificate.not_valid_after_utc),
        )
        await self._database.write(authority_rows.add_authority, made)
        newest = await self._database.read(authority_rows.newest_authority, role)
        assert newest is not None
        return newest

    def _new_root(self, made_id: str) -> Signer:
        return authority.new_root(made_id[-_INSTALL_HEX:], self._clock())

    def _new_issuing(self, root: Authority, made_id: str) -> Signer:
        return authority.new_issuing(
            self._signer(root), made_id[-_INSTALL_HEX:], self.places(root.id), self._clock()
        )

    def _signer(self, found: Authority) -> Signer:
        key = load_pem_private_key(open_key(self._keyring, found.id, found.private_key), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return Signer(x509.load_der_x509_certificate(found.certificate), key)


def _begins_at(found: Authority) -> int:
    return microseconds(x509.load_der_x509_certificate(found.certificate).not_valid_before_utc)


def _has_issued(issuing: Authority, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_der_x509_certificate(issuing.certificate))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
