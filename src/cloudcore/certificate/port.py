"""What serves TLS does with certificates: resolve a reference, hold what it serves, and open it."""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.certificate import rows
from cloudcore.certificate.certificate import Certificate
from cloudcore.certificate.keys import PrivateKeys
from cloudcore.certificate.rows import ROWS
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict
from cloudcore.resource_references import Authorize


class Servable(NamedTuple):
    """A certificate as a server needs it."""

    fingerprint: str
    """It differs after each renewal."""
    expires_at: int
    full_chain_pem: str
    """The certificate, and behind it its issuers without the root."""
    private_key_pem: bytes
    """A secret."""

    def __repr__(self) -> str:
        """Show no key."""
        return f"Servable({self.fingerprint})"


class Certificates:
    """The certificates of this install."""

    def __init__(self, region: str, private_keys: PrivateKeys) -> None:
        self._region = region
        self._private_keys = private_keys

    def resolve(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        authorize: Authorize,
        *,
        field: str = "certificate",
    ) -> Certificate:
        """Return the certificate that a name, an id or a CRN means.

        Raises:
            InvalidInput: it is no reference of this account and region; `field` is named.
            AccessDenied: by `authorize`.
            CertificateMissing: there is no such certificate.

        """
        return ROWS.resolve(tx, account_id, self._region, field, reference, authorize)

    def hold(
        self,
        tx: Connection,
        account_id: str,
        reference: str,
        used_by: str,
        *,
        field: str = "certificate",
    ) -> Certificate:
        """Return the certificate that a name, an id or a CRN means; it is not deleted while held.

        `used_by` is the CRN of what serves it, or a word for a part of the platform.

        Raises:
            InvalidInput: it is no reference of this account and region; `field` is named.
            CertificateMissing: there is no such certificate.
            Conflict: it is revoked, or its owner made the key, so that it is not here.

        """
        found = ROWS.resolve(tx, account_id, self._region, field, reference, None)
        held = ROWS.lock(tx, account_id, found.id)
        if held.revocation_asked_at is not None:
            raise Conflict("the certificate is revoked, or about to be", reason="revoked")
        if held.key_source == "owner":
            raise Conflict(
                "the certificate cannot be served here: its key is with its owner",
                reason="key_elsewhere",
            )
        rows.add_user(tx, held.id, used_by)
        return held

    def release(self, tx: Connection, certificate_id: str, used_by: str) -> None:
        """Hold a certificate no more; no error if it was not held."""
        rows.remove_user(tx, certificate_id, used_by)

    def fingerprint(self, tx: Connection, account_id: str, certificate_id: str) -> str | None:
        """Return what tells whether `open` would return another one; None if there is none."""
        found = ROWS.find(tx, account_id, certificate_id)
        return None if found is None else found.fingerprint

    async def open(
        self, database: Database, account_id: str, certificate_id: str
    ) -> Servable | None:
        """Return what is to be served, or None if nothing was issued yet, or it was deleted.

        One that has expired or was revoked is returned too: to serve it is better than nothing.

        Raises:
            PlatformError: the account's KMS key cannot be used now; what is served before stays.

        """
        found = await database.read(ROWS.find, account_id, certificate_id)
        if found is None or found.certificate_pem is None or found.private_key is None:
            return None
        assert found.fingerprint is not None
        assert found.expires_at is not None
        return Servable(
            found.fingerprint,
            found.expires_at,
            found.certificate_pem + (found.chain_pem or ""),
            await self._private_keys.open(found),
        )
