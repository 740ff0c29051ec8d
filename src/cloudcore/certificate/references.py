"""Find the certificate that a request means: by its id, its CRN or its name."""

from __future__ import annotations

from typing import Final

from cloudcore.certificate.rows import (
    Certificate,
    find_certificate,
    find_certificate_named,
    handle_of,
)
from cloudcore.certificate.rules import CertificateMissing
from cloudcore.db.base import Connection
from cloudcore.resource_names import Kind, Scope, read_reference

CERTIFICATE: Final = Kind("certificate", "certificate")


def resolve_certificate(
    tx: Connection, account_id: str, region: str, field: str, value: str
) -> Certificate:
    """Return the certificate of an account that `value` in a request's `field` means.

    Raises:
        InvalidInput: `value` is malformed, or a CRN of another region or account.
        CertificateMissing: the account has no such certificate.

    """
    handle = handle_of(tx, account_id) if value.startswith("crn:") else ""
    meant = read_reference(Scope(account_id, handle, region), CERTIFICATE, field, value)
    if meant.id is not None:
        found = find_certificate(tx, account_id, meant.id)
    else:
        found = find_certificate_named(tx, account_id, region, meant.name)
    if found is None or found.region != region:
        raise CertificateMissing
    return found
