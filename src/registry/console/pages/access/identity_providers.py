"""The identity providers where an organization's people sign in; pages for its owners."""

from __future__ import annotations

from typing import Any, Final

from litestar import post

from registry.console.addresses import PEOPLE
from registry.console.admission import Requires
from registry.console.browser_request import is_whole_number
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, WrongInput
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_ALL: Final = f"{PEOPLE}/{{organization:str}}/identity-providers"
_ONE: Final = f"{_ALL}/{{provider:str}}"
_API: Final = "/v1/organizations/{organization}/identity-providers"
_ONE_API: Final = f"{_API}/{{provider}}"
_PERSON: Final = {"requires": Requires.PERSON}


def _fields(page: PageRequest) -> dict[str, Any]:
    """Return the changeable fields of a provider in the form, except secret and status.

    Raise `WrongInput` if the session length in hours is not a number.
    """
    hours = page.text("session_hours")
    if not is_whole_number(hours, 6):
        raise WrongInput("session_hours", "The hours of a session are a number, from 1 to 720.")
    return {
        "session_hours": int(hours),
        "name": page.text("name"),
        "scopes": page.form.get("scopes", "").split(),
        "email_domains": page.words("email_domains"),
        "email_verified_claim": page.text("email_verified_claim"),
        "creates_people": "creates_people" in page.form,
    }


async def _list(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    found = await page.person.get(page.fill(_API), limit=200)  # an organization has fewer
    return page.show(
        "identity_providers.html",
        providers=found["identity_providers"],
        base=page.fill(_ALL),
        back=page.fill(f"{PEOPLE}/{{organization}}"),
        refusal=refusal,
    )


async def _show(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    found = await page.person.get(page.fill(_ONE_API))
    return page.show(
        "identity_provider.html",
        provider=found["identity_provider"],
        base=page.fill(_ONE),
        back=page.fill(_ALL),
        refusal=refusal,
    )


_LIST: Final = FormPage(_ALL, _list, _PERSON)
_PROVIDER: Final = FormPage(_ONE, _show, _PERSON)
list_providers, show_provider = _LIST.get(), _PROVIDER.get()


@_LIST.form()
async def add_provider(page: InjectedPage) -> PageResponse:
    """Add a provider, and redirect to its page, which shows the redirect URI."""
    body = {
        **_fields(page),
        "issuer": page.text("issuer"),
        "client_id": page.text("client_id"),
        "client_secret": page.form.get("client_secret") or None,
        "groups_claim": page.text("groups_claim"),
    }
    made = await page.person.post(page.fill(_API), body)
    return page.go(
        f"{page.fill(_ALL)}/{made['identity_provider']['id']}",
        "The provider was added. Register its redirect URI there.",
    )


@_PROVIDER.form()
async def save_provider(page: InjectedPage) -> PageResponse:
    """Change a provider; the secret stays, unless the form has a new one or ``no_secret``."""
    status = "inactive" if "inactive" in page.form else "active"
    changes = {**_fields(page), "status": status}
    if "no_secret" in page.form:
        changes["client_secret"] = None
    elif secret := page.form.get("client_secret"):
        changes["client_secret"] = secret
    await page.person.change("PATCH", page.fill(_ONE_API), changes)
    return page.go(page.fill(_ONE), "The provider was saved.")


@post(f"{_ONE}/delete", opt=_PERSON)
async def delete_provider(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the provider; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        found = await page.person.get(page.fill(_ONE_API))
        name = found["identity_provider"]["name"]
        return page.show(
            "question.html",
            title=f"Delete {name}?",
            heading=f"Delete the identity provider {name}?",
            words="Its people stay, but lose the roles that its groups gave them, with their open"
            " sessions of these. The sign-ins that it began end. Who has no password cannot sign in"
            " until an owner resets it. It cannot be restored.",
            button="Delete the provider",
            back=page.fill(_ONE),
        )
    await page.person.change("DELETE", page.fill(_ONE_API))
    return page.go(
        page.fill(_ALL), "The provider was deleted, with the roles that its groups gave."
    )
