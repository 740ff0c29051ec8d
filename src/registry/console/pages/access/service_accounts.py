"""Service accounts: the programs of the account, with their keys and policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import post

from registry.console.addresses import SERVICE_ACCOUNTS
from registry.console.control_plane import unless_refused
from registry.console.form_refusals import leaving
from registry.console.nouns.handlers import list_page, one_page
from registry.console.nouns.noun_pages import (
    CREATED,
    DESCRIPTION,
    Column,
    Input,
    NounPages,
    RecordJson,
)
from registry.console.nouns.resources import deletion
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.access.policies import (
    attachment_handlers,
    read_policies,
    read_templates,
)

_ONE: Final = f"{SERVICE_ACCOUNTS}/{{service_account:str}}"
_ONE_API: Final = "/v1/service-accounts/{service_account}"


def key_expiry(form: Mapping[str, str]) -> dict[str, str]:
    """Return the field ``expires_at`` of a key: the beginning of the chosen day (UTC).

    Return an empty dict if no day was chosen.
    """
    day = form.get("expires", "").strip()
    return {"expires_at": f"{day}T00:00:00Z"} if day else {}


def show_new_key(page: PageRequest, key: Mapping[str, Any], back: str) -> PageResponse:
    """Show a key and its secret, with commands that use it."""
    settings = page.console.settings
    return page.show("new_access_key.html", key=key, back=back, registry_url=settings.url)


async def _read_access(page: PageRequest, account: RecordJson) -> Mapping[str, Any]:
    """Read a service account's keys and policies; either is None if the role may not list them."""
    keys = await unless_refused(page.api.get(f"{page.fill(_ONE_API)}/access-keys", limit=200))
    return {
        "keys": None if keys is None else keys["access_keys"],
        "policies": await read_policies(page, account["id"]),
    }


async def _read_templates(page: PageRequest) -> Mapping[str, Any]:
    return {"templates": await read_templates(page)}


_COLUMNS: Final = (
    Column("Status", "status", "mark", usual="active"),
    Column("Last used", "last_used_at", "time", none="never"),
    CREATED,
)
SERVICE_ACCOUNT: Final = NounPages(
    service="iam",
    one="service_account",
    many="service_accounts",
    title="Programs",
    section="access",
    path=SERVICE_ACCOUNTS,
    intro="A service account is what a program signs in as, such as a CI job or a cluster that"
    " pulls. It may do what its policies allow.",
    order="by name",
    columns=_COLUMNS,
    details=_COLUMNS,
    updates=(
        DESCRIPTION,
        Input(
            "status",
            "Status",
            "choice",
            "While it is suspended, its keys and tokens do not work.",
            choices=("active", "suspended"),
        ),
    ),
    methods=(
        deletion(
            "service account",
            "iam:DeleteServiceAccount",
            "Its access keys go with it, and programs that use them are refused at once. It cannot"
            " be restored; its policies stay.",
            "with its access keys",
        ),
    ),
    parts="noun_service_account.html",
    more=_read_access,
    more_of_all=_read_templates,
)


@list_page(SERVICE_ACCOUNT).form()
async def create_service_account(page: InjectedPage) -> PageResponse:
    """Create a service account; a template in the form gives it a policy, ``key`` a key."""
    body: dict[str, Any] = {
        "name": page.text("name"),
        "description": page.text("description"),
    }
    if template := page.form.get("template"):
        body["grants"] = [{"template": template, "names": page.words("names")}]
    if "key" in page.form:
        body["access_key"] = key_expiry(page.form)
    made = await page.api.post(SERVICE_ACCOUNT.api, body, once=page.once)
    there = f"{SERVICE_ACCOUNTS}/{made['service_account']['id']}"
    if "access_key" in made:
        return show_new_key(page, made["access_key"], there)
    return page.go(there, "The service account was created.")


_PROGRAM: Final = one_page(SERVICE_ACCOUNT)
_attach, _detach = attachment_handlers(SERVICE_ACCOUNTS, "service_account", _PROGRAM)
_KEYS: Final = f"{_ONE}/keys"
_KEYS_API: Final = f"{_ONE_API}/access-keys"
_KEY_API: Final = f"{_KEYS_API}/{{key}}"


@_PROGRAM.form("/keys")
async def create_key(page: InjectedPage) -> PageResponse:
    """Create a key, and show its secret."""
    body = {"description": page.text("description"), **key_expiry(page.form)}
    made = await page.api.post(page.fill(_KEYS_API), body, once=page.once)
    return show_new_key(page, made["access_key"], page.fill(_ONE))


leave_new_key = leaving(_KEYS, _ONE)


@_PROGRAM.form("/keys/{key:str}/status")
async def change_status(page: InjectedPage) -> PageResponse:
    """Make the key active or inactive."""
    return await _change(page, {"status": page.form.get("status", "")})


@_PROGRAM.form("/keys/{key:str}/end")
async def change_end(page: InjectedPage) -> PageResponse:
    """Change the day on which the key expires; without a day, the key never expires."""
    return await _change(page, {"expires_at": None, **key_expiry(page.form)})


@post(f"{_KEYS}/{{key:str}}/delete")
async def delete_key(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the key; with ``confirmed`` in the form, do it."""
    path = page.fill(_KEY_API)
    if "confirmed" not in page.form:
        key = (await page.api.get(path))["access_key"]
        await page.require("iam:DeleteAccessKey", key["service_account"]["crn"])
        return page.show("access_key_deletion.html", key=key, base=page.fill(_ONE))
    await page.api.change("DELETE", path)
    return page.go(
        page.fill(_ONE), "The access key was deleted. What it had logged in works no more."
    )


async def _change(page: PageRequest, changes: dict[str, Any]) -> PageResponse:
    await page.api.change("PATCH", page.fill(_KEY_API), changes)
    return page.go(page.fill(_ONE), "The access key was saved.")
