"""The access keys of a service account: create, end, suspend, rotate and delete."""

from __future__ import annotations

from typing import Any, Final

from litestar import get, post

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.new_access_keys import end_of_form, show_new_key
from registry.console.pages.refusals import complaint_of
from registry.console.pages.service_accounts import path_of, show
from registry.console.paths import SERVICE_ACCOUNTS

_KEYS: Final = f"{SERVICE_ACCOUNTS}/{{service_account:str}}/keys"
_ONE: Final = f"{_KEYS}/{{key:str}}"


@post(_KEYS)
async def create_key(page: InjectedPage) -> PageResponse:
    """Create a key, and show its secret."""
    description = page.form.get("description", "").strip()
    body = {"description": description, **end_of_form(page.form)}
    try:
        made = await page.api.post(_api(page), body)
    except Refused as error:
        return await show(page, complaint_of(error))
    return show_new_key(page, made["access_key"], path_of(page))


@get(_KEYS)
async def leave_new_key(page: InjectedPage) -> PageResponse:
    """Redirect to the service account a browser that reloads the page of a new key."""
    return page.go(path_of(page))


@post(f"{_ONE}/status")
async def change_status(page: InjectedPage) -> PageResponse:
    """Make the key active or inactive."""
    return await _change(page, {"status": page.form.get("status", "")})


@post(f"{_ONE}/end")
async def change_end(page: InjectedPage) -> PageResponse:
    """Change the day on which the key ends; an empty one means that it does not."""
    return await _change(page, {"expires_at": None, **end_of_form(page.form)})


@post(f"{_ONE}/delete")
async def delete_key(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the key; with ``confirmed`` in the form, do it."""
    path = f"{_api(page)}/{page.parameters['key']}"
    if "confirmed" not in page.form:
        key = (await page.api.get(path))["access_key"]
        await page.require("iam:DeleteAccessKey", key["service_account"]["crn"])
        return page.show("access_key_deletion.html", key=key, base=path_of(page))
    await page.api.change("DELETE", path)
    return page.go(path_of(page), "key-deleted")


async def _change(page: PageRequest, changes: dict[str, Any]) -> PageResponse:
    try:
        await page.api.change("PATCH", f"{_api(page)}/{page.parameters['key']}", changes)
    except Refused as error:
        return await show(page, complaint_of(error))
    return page.go(path_of(page), "key-saved")


def _api(page: PageRequest) -> str:
    return f"/v1/service-accounts/{page.parameters['service_account']}/access-keys"


HANDLERS: Final = (create_key, leave_new_key, change_status, change_end, delete_key)
