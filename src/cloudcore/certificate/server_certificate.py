"""The certificate of the server itself, of the install's own authority."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cryptography import x509

from cloudcore.acme.key_files import write_private
from cloudcore.certificate import authority_rows
from cloudcore.certificate.authority import pem
from cloudcore.certificate.embedded import EmbeddedAuthority
from cloudcore.certificate.keys import new_private_key, private_pem, signing_request
from cloudcore.db.base import Database
from cloudcore.own_certificate.places import own_certificate, root_file


class _NoTexts:
    """What an authority that reads no DNS is given."""

    async def publish(self, values: Mapping[str, str]) -> None:
        raise AssertionError(f"nobody asked for a proof of {list(values)}")

    async def withdraw(self) -> None:
        """Do nothing."""


async def write_server_certificate(
    database: Database, embedded: EmbeddedAuthority, names: Sequence[str], folder: Path
) -> None:
    """Issue a certificate for host names and addresses; write it, and the root that it is of.

    Raises:
        OSError: a file cannot be written.

    """
    key = new_private_key("ecdsa-p256")
    chain = await embedded.issue(signing_request(key, names), names, _NoTexts())
    found = await database.read(authority_rows.list_authorities)
    roots = (each.certificate for each in found if each.role == "root")
    write_private(root_file(folder), _pem(roots))
    served = private_pem(key) + _pem((chain.certificate, *chain.issuers))
    write_private(own_certificate(folder).certificate, served)


def _pem(certificates: Iterable[bytes]) -> bytes:
    return "".join(pem(x509.load_der_x509_certificate(each)) for each in certificates).encode()
