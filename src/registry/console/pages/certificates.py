"""Certificates: what they wait for, when they are renewed, and the revocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import get, post

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import CERTIFICATES

_API: Final = "/v1/certificates"
_ONE: Final = f"{CERTIFICATES}/{{certificate:str}}"
_PAGE: Final = 50
KEY_ALGORITHMS: Final = ("ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-4096")
STATES: Final = {
    "pending_validation": "Waits for DNS",
    "issuing": "Is being issued",
    "active": "Active",
    "expired": "Expired",
    "revoked": "Revoked",
    "failed": "Failed",
}
_ACTIONS: Final = {
    "revoke": "certificate:RevokeCertificate",
    "delete": "certificate:DeleteCertificate",
    "export": "certificate:ExportPrivateKey",
}
_WORDS: Final = {"revoke": "Revoke", "delete": "Delete", "export": "Export the key of"}


@get(CERTIFICATES)
async def list_certificates(page: InjectedPage) -> PageResponse:
    """List the certificates, the oldest first."""
    return await _list(page)


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
    return await _create(page, _API, body, "certificate-requested")


@post(f"{CERTIFICATES}/upload")
async def upload_certificate(page: InjectedPage) -> PageResponse:
    """Upload a certificate; a form that is refused is shown without its key."""
    form = page.form
    body = {"name": form.get("upload_name", "").strip()} | {
        name: form.get(name, "") for name in ("certificate_pem", "chain_pem", "private_key_pem")
    }
    return await _create(page, f"{_API}/upload", body, "certificate-uploaded")


@get(_ONE)
async def show_certificate(page: InjectedPage) -> PageResponse:
    """Show a certificate with its challenges and faults."""
    return await _show(page)


@post(f"{_ONE}/recheck")
async def recheck_challenges(page: InjectedPage) -> PageResponse:
    """Let its challenges be looked at now."""
    return await _act(page, "challenges/recheck", "certificate-rechecked")


@post(f"{_ONE}/revoke")
async def revoke_certificate(page: InjectedPage) -> PageResponse:
    """Ask, or with ``confirmed`` in the form revoke the certificate."""
    if "confirmed" not in page.form:
        return await _ask(page, "revoke")
    return await _act(page, "revoke", "certificate-revoked")


@post(f"{_ONE}/delete")
async def delete_certificate(page: InjectedPage) -> PageResponse:
    """Ask, or with ``confirmed`` in the form delete the certificate."""
    if "confirmed" not in page.form:
        return await _ask(page, "delete")
    try:
        await page.api.change("DELETE", _api(page))
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(CERTIFICATES, "certificate-deleted")


@post(f"{_ONE}/export")
async def export_private_key(page: InjectedPage) -> PageResponse:
    """Ask, or with ``confirmed`` in the form show the private key, this one time."""
    if "confirmed" not in page.form:
        return await _ask(page, "export")
    try:
        exported = await page.api.post(
            f"{_api(page)}/export-private-key", once=page.form.get("once", "")
        )
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.show("exported_key.html", exported=exported, back=_path(page))


async def _create(
    page: PageRequest, api: str, body: Mapping[str, object], said: str
) -> PageResponse:
    try:
        made = await page.api.post(api, body, once=page.form.get("once", ""))
    except Refused as error:
        return await _list(page, complaint_of(error))
    return page.go(f"{CERTIFICATES}/{made['certificate']['id']}", said)


async def _act(page: PageRequest, act: str, said: str) -> PageResponse:
    try:
        await page.api.post(f"{_api(page)}/{act}")
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(_path(page), said)


async def _ask(page: PageRequest, act: str) -> PageResponse:
    found = await _certificate(page)
    await page.require(_ACTIONS[act], found["crn"])
    return page.show(
        "certificate_question.html", certificate=found, base=_path(page), act=act, words=_WORDS[act]
    )


async def _show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    found = await _certificate(page)
    page.asks_about(found["crn"])
    return page.show(
        "certificate.html",
        complaint.status,
        certificate=found,
        base=_path(page),
        states=STATES,
        complaint=complaint,
    )


async def _list(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    found = await page.api.get(_API, marker=page.query.get("marker"), limit=_PAGE)
    return page.show(
        "certificates.html",
        complaint.status,
        certificates=found["certificates"],
        meta=found["meta"],
        states=STATES,
        algorithms=KEY_ALGORITHMS,
        is_upload="certificate_pem" in page.form,
        complaint=complaint,
    )


async def _certificate(page: PageRequest) -> dict[str, Any]:
    return dict((await page.api.get(_api(page)))["certificate"])


def _path(page: PageRequest) -> str:
    return f"{CERTIFICATES}/{page.parameters['certificate']}"


def _api(page: PageRequest) -> str:
    return f"{_API}/{page.parameters['certificate']}"


HANDLERS: Final = (
    list_certificates,
    create_certificate,
    upload_certificate,
    show_certificate,
    recheck_challenges,
    revoke_certificate,
    delete_certificate,
    export_private_key,
)
