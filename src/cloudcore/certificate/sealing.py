"""Private keys: those of certificates under the KMS key of their account.

Those of authorities, and of certificates that were issued earlier, are under the root key.
"""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.certificate.certificate import Certificate
from cloudcore.certificate.ports import AccountKeys
from cloudcore.keyring import Keyring


class SealedKey(NamedTuple):
    """The private key of a certificate, as its row has it."""

    private_key: bytes
    kms_key_id: str


class PrivateKeys:
    """Seals and opens the private keys of certificates."""

    def __init__(self, keyring: Keyring, account_keys: AccountKeys) -> None:
        self._keyring = keyring
        self._account_keys = account_keys

    async def seal(self, account_id: str, certificate_id: str, key_pem: bytes) -> SealedKey:
        """Seal the private key, in PEM, of a certificate of an account.

        Raises:
            PlatformError: the account's key cannot be used now.

        """
        kms_key_id, sealed = await self._account_keys.seal(
            account_id, key_pem, _context(certificate_id)
        )
        return SealedKey(sealed, kms_key_id)

    async def open(self, certificate: Certificate) -> bytes:
        """Return the private key of a certificate that was issued, in PEM; it is a secret.

        Raises:
            PlatformError: the account's key cannot be used now.

        """
        assert certificate.private_key is not None
        if certificate.kms_key_id is None:
            return open_key(self._keyring, certificate.id, certificate.private_key)
        return await self._account_keys.open(
            certificate.account_id,
            certificate.kms_key_id,
            certificate.private_key,
            _context(certificate.id),
        )


def seal_key(keyring: Keyring, owner_id: str, key_pem: bytes) -> bytes:
    """Seal a private key in PEM, of the authority of an id, under the root key."""
    return keyring.seal(key_pem, _context(owner_id))


def open_key(keyring: Keyring, owner_id: str, sealed: bytes) -> bytes:
    """Return a private key in PEM that was sealed under the root key; it is a secret."""
    return keyring.open(sealed, _context(owner_id))


def _context(owner_id: str) -> str:
    return f"certificate key {owner_id}"
