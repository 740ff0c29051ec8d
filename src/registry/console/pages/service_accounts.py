"""Service accounts: the programs of the account, and what each may do."""

from __future__ import annotations

from typing import Any, Final

from litestar import get, post

from cloudcore.errors import NotFound
from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.attached_policies import ask_to_detach, attach, detach, read_policies
from registry.console.pages.new_access_keys import end_of_form, show_new_key
from registry.console.pages.ready_made_rights import read_templates
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import SERVICE_ACCOUNTS

_API: Final = "/v1/service-accounts"
_ONE: Final = f"{SERVICE_ACCOUNTS}/{{service_account:str}}"
_KIND: Final = "service_account"
_PAGE: Final = 50


@get(SERVICE_ACCOUNTS)
async def list_service_accounts(page: InjectedPage) -> PageResponse:
    """List the service accounts by name."""
    return await _list(page)


@post(SERVICE_ACCOUNTS)
async def create_service_account(page: InjectedPage) -> PageResponse:
    """Create a service account, with a ready-made policy and a key if the form asks for them."""
    form = page.form
    body: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "description": form.get("description", "").strip(),
    }
    if form.get("template"):
        names = form.get("names", "").replace(",", " ").split()
        body["grants"] = [{"template": form["template"], "names": names}]
    if "key" in form:
        body["access_key"] = end_of_form(form)
    try:
        made = await page.api.post(_API, body, once=form.get("once", ""))
    except Refused as error:
        return await _list(page, complaint_of(error))
    there = f"{SERVICE_ACCOUNTS}/{made['service_account']['id']}"
    if "access_key" in made:
        return show_new_key(page, made["access_key"], there)
    return page.go(there, "service-account-saved")


@get(_ONE)
async def show_service_account(page: InjectedPage) -> PageResponse:
    """Show a service account with its keys and policies."""
    return await show(page)


@post(_ONE)
async def save_service_account(page: InjectedPage) -> PageResponse:
    """Change the description, and whether the service account is suspended."""
    changes = {
        "description": page.form.get("description", "").strip(),
        "status": "suspended" if "suspended" in page.form else "active",
    }
    try:
        await page.api.change("PATCH", _api(page), changes)
    except Refused as error:
        return await show(page, complaint_of(error))
    return page.go(path_of(page), "service-account-saved")


@post(f"{_ONE}/policies")
async def attach_policy(page: InjectedPage) -> PageResponse:
    """Attach a policy."""
    try:
        await attach(page, _KIND, page.parameters[_KIND])
    except Refused as error:
        return await show(page, complaint_of(error))
    except NotFound as error:
        return await show(page, Complaint(404, f"{error}."))
    return page.go(path_of(page), "policy-attached")


@post(f"{_ONE}/policies/{{policy:str}}/detach")
async def detach_policy(page: InjectedPage) -> PageResponse:
    """Ask whether to detach a policy; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        account = (await page.api.get(_api(page)))["service_account"]
        return await ask_to_detach(page, account, path_of(page))
    await detach(page, _KIND, page.parameters[_KIND])
    return page.go(path_of(page), "policy-detached")


@post(f"{_ONE}/delete")
async def delete_service_account(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the service account; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        account = (await page.api.get(_api(page)))["service_account"]
        await page.require("iam:DeleteServiceAccount", account["crn"])
        return page.show("service_account_deletion.html", account=account)
    await page.api.change("DELETE", _api(page))
    return page.go(SERVICE_ACCOUNTS, "service-account-deleted")


def path_of(page: PageRequest) -> str:
    """Return the path of the service account that a page is about."""
    return f"{SERVICE_ACCOUNTS}/{page.parameters[_KIND]}"


def _api(page: PageRequest) -> str:
    return f"{_API}/{page.parameters[_KIND]}"


async def show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    """Return the page of a service account."""
    account = (await page.api.get(_api(page)))["service_account"]
    page.asks_about(account["crn"])
    keys = await unless_refused(page.api.get(f"{_api(page)}/access-keys", limit=200))
    return page.show(
        "service_account.html",
        complaint.status,
        account=account,
        base=path_of(page),
        keys=None if keys is None else keys["access_keys"],
        policies=await read_policies(page, account["id"]),
        complaint=complaint,
    )


async def _list(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    found = await page.api.get(_API, marker=page.query.get("marker"), limit=_PAGE)
    return page.show(
        "service_accounts.html",
        complaint.status,
        accounts=found["service_accounts"],
        meta=found["meta"],
        templates=await read_templates(page),
        complaint=complaint,
    )


HANDLERS: Final = (
    list_service_accounts,
    create_service_account,
    show_service_account,
    save_service_account,
    attach_policy,
    detach_policy,
    delete_service_account,
)
