"""Certificates: issue, upload, export and revoke them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, get_args

from cloudcore.certificate import certificate
from registry.console.nouns.handlers import list_page, send_new
from registry.console.nouns.noun_pages import (
    CREATED,
    TAGS,
    Column,
    CustomMethod,
    Input,
    RecordJson,
    name_of,
    read_inputs,
)
from registry.console.nouns.resources import deletion, noun_of
from registry.console.page_request import InjectedPage, PageResponse

_STATES: Final = {
    "pending_validation": "Waits for DNS",
    "issuing": "Is being issued",
    "active": "Active",
    "expired": "Expired",
    "revoked": "Revoked",
    "failed": "Failed",
}
_DONE: Final = ("active", "expired")
_STATE: Final = Column("State", "status", "mark", _STATES, usual="active")
_DOMAINS: Final = Column("Domains", "domains", "texts")
_NEW: Final = (
    name_of(63),
    Input("key_algorithm", "Key", "choice", choices=get_args(certificate.KeyAlgorithm)),
    Input(
        "domains", "Domains", "texts", "One to a line, such as www.example.com or *.example.com."
    ),
    Input(
        "csr_pem",
        "Signing request",
        "pem",
        "To keep the private key to yourself: in PEM, as “openssl req -new” writes it. It names the"
        " domains, so they can be left out above, and it has its key already.",
        is_more=True,
    ),
)
_UPLOADED: Final = (
    Input("upload_name", "Name of what is uploaded", "code", longest=63, is_required=True),
    Input("certificate_pem", "Certificate", "pem", is_required=True),
    Input("chain_pem", "Its issuers, the nearest first", "pem"),
    Input(
        "private_key_pem",
        "Its private key",
        "pem",
        "All in PEM. The key is sealed and never shown again.",
        is_required=True,
    ),
)
_EXPIRES: Final = Column("Expires", "expires_at", "time")


def _may_be_exported(certificate: RecordJson) -> bool:
    is_here = certificate["key_source"] == "platform"
    was_given = certificate["private_key_exported_at"] is not None
    return certificate["status"] in _DONE and is_here and not was_given


CERTIFICATE: Final = replace(
    noun_of(
        certificate.CERTIFICATE, "A certificate of TLS is issued and renewed here, or uploaded."
    ),
    columns=(_STATE, _DOMAINS, _EXPIRES),
    details=(Column("Issued", "issued_at", "time"), CREATED),
    updates=(TAGS,),
    methods=(
        CustomMethod(
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
        CustomMethod(
            "export",
            "Export the key of",
            "certificate:ExportPrivateKey",
            "",
            path="export-private-key",
            asks="The next page shows the private key, once.",
            label="Export its private key",
            done="Show the private key",
            can=_may_be_exported,
            answered=lambda page, exported, back: page.show(
                "exported_key.html", exported=exported, back=back
            ),
        ),
        CustomMethod(
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
    shows={"states": _STATES, "requested": _NEW, "uploaded": _UPLOADED},
)


_LIST: Final = list_page(CERTIFICATE)


@_LIST.form()
async def create_certificate(page: InjectedPage) -> PageResponse:
    """Request a certificate."""
    body = read_inputs(_NEW, page.form)
    if "csr_pem" in body:
        body.pop("key_algorithm", None)  # it has its own
    said = "The certificate was created. It is issued as soon as its domains are proved."
    return await send_new(page, CERTIFICATE, CERTIFICATE.api, body, said)


@_LIST.form("/upload")
async def upload_certificate(page: InjectedPage) -> PageResponse:
    """Upload a certificate; if the form is refused, it is shown again without the private key."""
    body = read_inputs(_UPLOADED, page.form)
    body["name"] = body.pop("upload_name")
    said = "The certificate was uploaded. Its key is sealed."
    return await send_new(page, CERTIFICATE, f"{CERTIFICATE.api}/upload", body, said)
