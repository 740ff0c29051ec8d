"""The person's own account: passwords for container clients, and the password to sign in with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from litestar import post

from registry.console.addresses import CONTAINER_PASSWORDS, MY_ACCOUNT
from registry.console.admission import Requires
from registry.console.assets import address_of_client
from registry.console.client_wheel import client_wheel
from registry.console.control_plane import Refused
from registry.console.form_refusals import (
    NO_REFUSAL,
    FormPage,
    FormRefusal,
    WrongInput,
    leaving,
    refusal_of,
)
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.sessions import list_roles

_PERSON: Final = {"requires": Requires.PERSON}
_API: Final = "/v1/users/me/container-passwords"


async def _show(
    page: PageRequest, refusal: FormRefusal = NO_REFUSAL, making: FormRefusal = NO_REFUSAL
) -> PageResponse:
    wheel = await asyncio.to_thread(client_wheel)
    # A person has fewer.
    passwords = (await page.person.get(_API, limit=200))["container_passwords"]
    return page.show(
        "my_account.html",
        max(refusal.status, making.status),
        passwords=passwords,
        roles=await list_roles(page.person),
        role=page.form.get("role") or page.query.get("role") or _acting(page),
        name=page.form.get("name") or _free_name(passwords),
        registry_url=page.console.settings.url,
        client=address_of_client(),
        client_sha256=wheel.sha256,
        refusal=refusal,
        making=making,
    )


def _acting(page: PageRequest) -> str:
    return "" if page.session.acting is None else page.session.acting.role_id


def _free_name(passwords: Iterable[dict[str, Any]]) -> str:
    """Return a name for a new container password that is not in use."""
    taken = {each["name"] for each in passwords}
    names = ("docker", *(f"docker-{number}" for number in range(2, len(taken) + 2)))
    return next(each for each in names if each not in taken)


_MY_ACCOUNT: Final = FormPage(MY_ACCOUNT, _show, _PERSON)
show_my_account = _MY_ACCOUNT.get()


@_MY_ACCOUNT.form()
async def change_password(page: InjectedPage) -> PageResponse:
    """Change the password; the form's passwords are never shown again."""
    form = page.form
    new = form.get("password", "")
    if new != form.get("again", ""):
        raise WrongInput("password", "The new password was typed in two ways.")
    body = {"current_password": form.get("current_password", ""), "password": new}
    await page.person.change("PUT", "/v1/users/me/password", body)
    return page.go(
        MY_ACCOUNT,
        "Your password was changed. Your other sessions have ended, and so have your"
        " passwords for container clients.",
    )


@post(CONTAINER_PASSWORDS, opt=_PERSON)
async def make_container_password(page: InjectedPage) -> PageResponse:
    """Make a container password, and show it once: no other page ever has it."""
    body = {"name": page.text("name"), "role": page.form.get("role", "")}
    try:
        made = await page.person.post(_API, body, once=page.once)
    except Refused as error:
        return await _show(page, making=refusal_of(error))
    url = page.console.settings.url
    made = made["container_password"]
    return page.show("container_password.html", made=made, back=MY_ACCOUNT, registry_url=url)


leave_container_password = leaving(CONTAINER_PASSWORDS, MY_ACCOUNT, _PERSON)


@post(f"{CONTAINER_PASSWORDS}/{{container_password:str}}/revoke", opt=_PERSON)
async def revoke_container_password(page: InjectedPage) -> PageResponse:
    """Revoke a container password."""
    await page.person.change("DELETE", f"{_API}/{page.parameters['container_password']}")
    return page.go(MY_ACCOUNT, "The password was revoked. Clients get no more tokens by it.")
