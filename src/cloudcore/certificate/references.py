"""Find the certificate that a request means: by its id, its CRN or its name."""

from __future__ import annotations

from typing import Final

from cloudcore.account_rows import handle_of
from cloudcore.certificate.rows import Certificate, find_certificate, find_certificate_named
from cloudcore.certificate.rules import CertificateMissing
from cloudcore.db.base import Connection
from cloudcore.resource_names import Authorize, Kind, Scope, resolve


def resolve_certificate(
    tx: Connection,
    account_id: str,
    region: str,
    field: str,
    value: str,
    authorize: Authorize | None,
) -> Certificate:
    """Return the certificate of an account that `value` in a request's `field` means.

    `authorize` raises unless the caller may use it; None if the platform itself asks.

    Raises:
        InvalidInput: `value` is malformed, or a CRN of another region or account.
        AccessDenied: by `authorize`.
        CertificateMissing: the account has no such certificate.

    """
    handle = handle_of(tx, account_id) if value.startswith("crn:") else ""
    return resolve(tx, Scope(account_id, handle, region), CERTIFICATE, field, value, authorize)


def _find(tx: Connection, scope: Scope, certificate_id: str) -> Certificate | None:
    found = find_certificate(tx, scope.account_id, certificate_id)
    return found if found is not None and found.region == scope.region else None


def _find_named(tx: Connection, scope: Scope, name: str) -> Certificate | None:
    return find_certificate_named(tx, scope.account_id, scope.region, name)


CERTIFICATE: Final = Kind("certificate", "certificate", _find, _find_named, CertificateMissing)
