"""Certificates of database servers: by the authority of the install, whose root clients get."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509

from cloudcore.certificate.authority import microseconds, pem
from cloudcore.certificate.embedded import EmbeddedAuthority, list_authorities
from cloudcore.certificate.keys import new_private_key
from cloudcore.databases.needs import ServerCertificate
from cloudcore.db.base import Database
from cloudcore.key_pairs import key_pem, signing_request


class InstallAuthority:
    """Makes certificates for database servers; see `ServerAuthority`."""

    def __init__(self, database: Database, embedded: EmbeddedAuthority) -> None:
        self._database = database
        self._embedded = embedded

    async def issue(self, names: Sequence[str]) -> ServerCertificate:
        """Return a certificate for names and addresses, with a new key."""
        key = new_private_key("ecdsa-p256")
        chain = await self._embedded.issue(signing_request(key, names), names)
        made = x509.load_der_x509_certificate(chain.certificate)
        found = await self._database.read(list_authorities)
        roots = (each.certificate for each in found if each.role == "root")
        return ServerCertificate(
            chain_pem=_pem(chain.certificate, *chain.issuers),
            key_pem=key_pem(key).decode(),
            ca_pem=_pem(*roots),
            expires_at=microseconds(made.not_valid_after_utc),
        )


def _pem(*certificates: bytes) -> str:
    return "".join(pem(x509.load_der_x509_certificate(each)) for each in certificates)
