"""Keys: what encrypts the account's blobs, and what each key protects."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.creation import create_named
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import KEYS

_API: Final = "/v1/keys"
_ONE: Final = f"{KEYS}/{{key:str}}"
_PAGE: Final = 50
_DEFAULT_DAYS: Final = 30
_WRONG_DAYS: Final = Complaint(400, "The days are a whole number from 7 to 30.")


@get(KEYS)
async def list_keys(page: InjectedPage) -> PageResponse:
    """List the keys, the oldest first."""
    return await _list(page)


@post(KEYS)
async def create_key(page: InjectedPage) -> PageResponse:
    """Create a key that can seal blobs."""
    return await create_named(page, _API, "key", KEYS, "kms-key-created", _list)


@get(_ONE)
async def show_key(page: InjectedPage) -> PageResponse:
    """Show a key with what it protects."""
    return await _show(page)


@post(f"{_ONE}/rotate")
async def rotate_key(page: InjectedPage) -> PageResponse:
    """Give the key new material for what is sealed from now on."""
    return await _do(page, "rotate", "kms-key-rotated")


@post(f"{_ONE}/enable")
async def enable_key(page: InjectedPage) -> PageResponse:
    """Let the key be used."""
    return await _do(page, "enable", "kms-key-enabled")


@post(f"{_ONE}/disable")
async def disable_key(page: InjectedPage) -> PageResponse:
    """Stop all use of the key."""
    return await _do(page, "disable", "kms-key-disabled")


@post(f"{_ONE}/cancel-deletion")
async def cancel_deletion(page: InjectedPage) -> PageResponse:
    """Keep a key whose deletion is pending."""
    return await _do(page, "cancel-deletion", "kms-key-kept")


@post(f"{_ONE}/delete")
async def delete_key(page: InjectedPage) -> PageResponse:
    """Show what the deletion would shred; with ``confirmed`` in the form, schedule it."""
    if "confirmed" not in page.form:
        return await _ask_to_delete(page)
    written = page.form.get("days", "").strip()
    if not (written.isascii() and written.isdigit() and len(written) <= 2):
        return await _ask_to_delete(page, _WRONG_DAYS)
    try:
        await page.api.change("DELETE", _api(page), pending_window_days=int(written))
    except Refused as error:
        if error.status != 400:
            raise
        return await _ask_to_delete(page, _WRONG_DAYS)
    return page.go(_path(page), "kms-key-deleted")


async def _do(page: PageRequest, verb: str, said: str) -> PageResponse:
    try:
        await page.api.post(f"{_api(page)}/{verb}")
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(_path(page), said)


async def _ask_to_delete(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    key = (await page.api.get(_api(page)))["key"]
    await page.require("kms:ScheduleKeyDeletion", _crn(page, key))
    return page.show(
        "key_deletion.html",
        complaint.status,
        key=key,
        base=_path(page),
        usage=await _usage(page),
        days=page.form.get("days", _DEFAULT_DAYS),
        complaint=complaint,
    )


async def _show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    key = (await page.api.get(_api(page)))["key"]
    crn = _crn(page, key)
    page.asks_about(crn)
    return page.show(
        "key.html",
        complaint.status,
        key=key,
        crn=crn,
        base=_path(page),
        usage=await _usage(page),
        complaint=complaint,
    )


async def _list(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    state, marker = page.query.get("state"), page.query.get("marker")
    found = await page.api.get(_API, state=state, marker=marker, limit=_PAGE)
    return page.show(
        "keys.html",
        complaint.status,
        keys=found["keys"],
        meta=found["meta"],
        is_of_deleted=state == "deleted",
        complaint=complaint,
    )


async def _usage(page: PageRequest) -> dict[str, object] | None:
    """Return what the key protects, or None if the role may not read it."""
    path = f"/v1/key-usage/{page.parameters['key']}"
    found = await unless_refused(page.api.get(path))
    return None if found is None else dict(found["key_usage"])


def _crn(page: PageRequest, key: dict[str, str | None]) -> str:
    """Return the CRN of a key as policies see it, which have the id of a deleted one."""
    acting = page.session.acting
    assert acting is not None
    region = page.console.settings.region
    return key["crn"] or f"crn:kms:{region}:{acting.account_id}:key/{key['id']}"


def _path(page: PageRequest) -> str:
    return f"{KEYS}/{page.parameters['key']}"


def _api(page: PageRequest) -> str:
    return f"{_API}/{page.parameters['key']}"


HANDLERS: Final = (
    list_keys,
    create_key,
    show_key,
    rotate_key,
    enable_key,
    disable_key,
    cancel_deletion,
    delete_key,
)
