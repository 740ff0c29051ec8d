"""The accounts of the person's organizations: create, suspend, resume, and work in them.

These pages act as the person who has signed in, since a role acts in one account.
"""

from __future__ import annotations

from typing import Any, Final

from litestar import post

from registry.console.addresses import ACCOUNTS
from registry.console.admission import Requires
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, beside_form
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.sessions import list_roles

_PERSON: Final = {"requires": Requires.PERSON}
_API: Final = "/v1/accounts"
_ONE_API: Final = f"{_API}/{{account}}"


async def _show(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    accounts = await page.person.get(_API, marker=page.marker, limit=50)
    joined = (await page.person.get("/v1/organizations", limit=200))["organizations"]
    owned = [each for each in joined if each["role"] == "owner"]
    return page.show(
        "accounts.html",
        accounts=accounts,
        roles=_by_account(await list_roles(page.person)),
        owned={each["id"] for each in owned},
        founding=_founding(page, owned),
        refusal=refusal,
    )


def _by_account(roles: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Map account ids to the person's roles there."""
    found: dict[str, list[dict[str, Any]]] = {}
    for role in roles:
        found.setdefault(role["account"]["id"], []).append(role)
    return found


def _founding(page: PageRequest, owned: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the organizations in which the install's settings let the person create accounts."""
    match page.console.settings.founders:
        case "anyone":
            return owned
        case "owners":
            return [each for each in owned if not each["is_personal"]]
        case _:
            return []


_ACCOUNTS: Final = FormPage(ACCOUNTS, _show, _PERSON)
show_accounts = _ACCOUNTS.get()


@_ACCOUNTS.form()
async def create_account(page: InjectedPage) -> PageResponse:
    """Create an account, whose first role the person may assume."""
    body = {"handle": page.text("handle"), "organization": page.form.get("organization", "")}
    await page.person.post(_API, body, once=page.once)
    return page.go(ACCOUNTS, "The account was created. “Work in it” below takes you there.")


@post(f"{ACCOUNTS}/{{account:str}}/suspend", opt=_PERSON)
async def suspend_account(page: InjectedPage) -> PageResponse:
    """Ask whether to suspend the account; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        account = (await page.person.get(page.fill(_ONE_API)))["account"]
        return page.show(
            "question.html",
            title=f"Suspend {account['handle']}",
            heading=f"Suspend {account['handle']}?",
            words="Nobody can act in it until you resume it: its programs, roles and container"
            " clients are refused, within five minutes also for pulls and pushes. Nothing in it is"
            " deleted.",
            button="Suspend the account",
            back=ACCOUNTS,
            leave="Keep it",
        )
    return await _set_status(
        page, "suspended", "The account is suspended: nobody can act in it until it is resumed."
    )


@_ACCOUNTS.form("/{account:str}/resume")
async def resume_account(page: InjectedPage) -> PageResponse:
    """Resume a suspended account."""
    return await _set_status(page, "active", "The account works again.")


@beside_form(_show)
async def _set_status(page: PageRequest, status: str, said: str) -> PageResponse:
    await page.person.change("PATCH", page.fill(_ONE_API), {"status": status})
    return page.go(ACCOUNTS, said)
