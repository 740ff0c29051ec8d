"""How a request refers to a certificate: by its id, its CRN or its name."""

from __future__ import annotations

from typing import Final

from cloudcore.certificate.rows import Certificate, find_certificate, find_certificate_named
from cloudcore.certificate.rules import CertificateMissing
from cloudcore.db.base import Connection
from cloudcore.resource_references import Kind, Scope


def _find(tx: Connection, scope: Scope, certificate_id: str) -> Certificate | None:
    found = find_certificate(tx, scope.account_id, certificate_id)
    return found if found is not None and found.region == scope.region else None


def _find_named(tx: Connection, scope: Scope, name: str) -> Certificate | None:
    return find_certificate_named(tx, scope.account_id, scope.region, name)


CERTIFICATE: Final = Kind("certificate", "certificate", _find, _find_named, CertificateMissing)
