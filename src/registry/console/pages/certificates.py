"""Certificates: what they wait for, when they are renewed, and the revocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import post

from registry.console.described_nouns import deletion
from registry.console.noun_pages import Act, Column, Input, NounPages, Shown
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.nouns import send_new
from registry.console.paths import CERTIFICATES

KEY_ALGORITHMS: Final = ("ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096")
_STATES: Final = {
    "pending_validation": "Waits for DNS",
    "issuing": "Is being issued",
    "active": "Active",
    "expired": "Expired",
    "revoked": "Revoked",
    "failed": "Failed",
}
_DONE: Final = ("active", "expired")
_CREATED: Final = Column("Created", "created_at", "time")
_STATE: Final = Column("State", "status", "mark", _STATES, usual="active")
_DOMAINS: Final = Column("Domains", "domains", "texts")
_EXPIRES: Final = Column("Expires", "expires_at", "time")
_TAGS: Final = Input("tags", "Tags", "tags", "As KEY=VALUE, one to a line.")


async def _read_forms(page: PageRequest) -> Mapping[str, Any]:
    return {"algorithms": KEY_ALGORITHMS, "is_upload": "certificate_pem" in page.form}


async def _read_states(_page: PageRequest, _certificate: Shown) -> Mapping[str, Any]:
    return {"states": _STATES}


def _may_be_exported(certificate: Shown) -> bool:
    is_here = certificate["key_source"] == "platform"
    was_given = certificate["private_key_exported_at"] is not None
    return certificate["status"] in _DONE and is_here and not was_given


def _show_exported_key(page: PageRequest, exported: Any, back: str) -> PageResponse:  # noqa: ANN401
    return page.show("exported_key.html", exported=exported, back=back)


CERTIFICATE: Final = NounPages(
    service="certificate",
    one="certificate",
    many="certificates",
    noun="certificate",
    plural="certificates",
    path=CERTIFICATES,
    api="/v1/certificates",
    intro="A certificate of TLS is issued and renewed here, or uploaded.",
    list_action="certificate:ListCertificates",
    create_action="certificate:CreateCertificate",
    update_action="certificate:UpdateCertificate",
    columns=(_STATE, _DOMAINS, _EXPIRES),
    facts=(Column("Issued", "issued_at", "time"), _CREATED),
    filters=(Input("name", "Name", "code"),),
    updates=(_TAGS,),
    updated="The certificate was changed.",
    acts=(
        Act(
            "recheck",
            "Look again at the domains of",
            "certificate:RecheckChallenges",
            "Its domains are being looked at. Load the page again in a moment.",
            path="challenges/recheck",
            label="Look at its domains again now",
            can=lambda certificate: (
                certificate["challenges"] and certificate["status"] != "revoked"
            ),
        ),
        Act(
            "export",
            "Export the key of",
            "certificate:ExportPrivateKey",
            "",
            path="export-private-key",
            asks="The next page shows the private key, once.",
            label="Export its private key",
            done="Show the private key",
            can=_may_be_exported,
            answered=_show_exported_key,
        ),
        Act(
            "revoke",
            "Revoke",
            "certificate:RevokeCertificate",
            "It is being revoked. Load the page again in a moment.",
            asks="Clients that look at revocation lists no longer trust it.",
            can=lambda certificate: certificate["status"] in _DONE,
            is_grave=True,
        ),
        deletion("certificate", "certificate:DeleteCertificate", said="with its key"),
    ),
    parts="noun_certificate.html",
    more=_read_states,
    more_of_all=_read_forms,
)


@post(CERTIFICATES)
async def create_certificate(page: InjectedPage) -> PageResponse:
    """Let a certificate be issued."""
    form = page.form
    body: dict[str, object] = {"name": form.get("name", "").strip()}
    if domains := form.get("domains", "").split():
        body["domains"] = domains
    if request := form.get("csr_pem", "").strip():
        body["csr_pem"] = request
    else:
        body["key_algorithm"] = form.get("key_algorithm", KEY_ALGORITHMS[0])
    said = "The certificate was created. It is issued as soon as its domains are proved."
    return await send_new(page, CERTIFICATE, CERTIFICATE.api, body, said)


@post(f"{CERTIFICATES}/upload")
async def upload_certificate(page: InjectedPage) -> PageResponse:
    """Upload a certificate; a form that is refused is shown without its key."""
    form = page.form
    body = {"name": form.get("upload_name", "").strip()} | {
        name: form.get(name, "") for name in ("certificate_pem", "chain_pem", "private_key_pem")
    }
    said = "The certificate was uploaded. Its key is sealed."
    return await send_new(page, CERTIFICATE, f"{CERTIFICATE.api}/upload", body, said)


HANDLERS: Final = (create_certificate, upload_certificate)
