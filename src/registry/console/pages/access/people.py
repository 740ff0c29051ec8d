"""The people of an organization: each member, invitations and new persons.

These pages act as the person who has signed in, since no role manages people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar import get, post

from registry.console.addresses import PEOPLE
from registry.console.admission import Requires
from registry.console.control_plane import Refused, unless_refused
from registry.console.form_refusals import NO_REFUSAL, FormPage, FormRefusal, leaving
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

_API: Final = "/v1/organizations"
_ONE: Final = f"{PEOPLE}/{{organization:str}}"
_ONE_API: Final = f"{_API}/{{organization}}"
_MEMBER: Final = f"{_ONE}/members/{{user:str}}"
_MEMBER_API: Final = f"{_ONE_API}/members/{{user}}"
_USER_API: Final = "/v1/users/{user}"
_PAGE: Final = 50
_PERSON: Final = {"requires": Requires.PERSON}
MEMBER_ROLES: Final = ("member", "billing", "owner")


async def _show(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    api, query = page.person, page.query
    organization = (await api.get(page.fill(_ONE_API)))["organization"]
    members = await api.get(f"{page.fill(_ONE_API)}/members", marker=page.marker, limit=_PAGE)
    invitations = await unless_refused(
        api.get(f"{page.fill(_ONE_API)}/invitations", marker=query.get("invited"), limit=_PAGE)
    )
    return page.show(
        "people.html",
        organization=organization,
        statuses=await _statuses(page),
        base=f"{PEOPLE}/{organization['id']}",
        members=members,
        invitations=invitations,
        member_roles=MEMBER_ROLES,
        refusal=refusal,
    )


async def _statuses(page: PageRequest) -> Mapping[str, str]:
    """Map the ids of people in the role's organization to their status, active or suspended.

    Only the first 200 people are covered. The result is empty if the role may not list people, or
    if there is no role: ``/v1`` would list only the people of the session's organization.
    """
    if page.session.acting is None or not (await page.rights()).may_all("iam:ListUsers"):
        return {}
    try:
        found = await page.api.get("/v1/users", limit=200)
    except Refused:  # or the role's token has expired: pages for persons do not renew it
        return {}
    return {each["id"]: each["status"] for each in found["users"]}


async def _show_member(page: PageRequest, refusal: FormRefusal = NO_REFUSAL) -> PageResponse:
    """Show a person, and the person's role in the organization if it may be read."""
    organization = (await page.person.get(page.fill(_ONE_API)))["organization"]
    user = (await page.person.get(page.fill(_USER_API)))["user"]
    return page.show(
        "member.html",
        organization=organization,
        user=user,
        role=await unless_refused(_role(page)),
        base=page.fill(_MEMBER),
        back=page.fill(_ONE),
        is_self=user["id"] == page.session.user_id,
        member_roles=MEMBER_ROLES,
        refusal=refusal,
    )


async def _role(page: PageRequest) -> str:
    """Return the person's role in the organization; an empty string if not a member."""
    path = page.fill(f"{_ONE_API}/members")
    async for each in page.person.each(path, "members"):
        if each["user"]["id"] == page.parameters["user"]:
            return str(each["role"])
    return ""


@get(PEOPLE, opt=_PERSON)
async def choose_organization(page: InjectedPage) -> PageResponse:
    """Redirect to the person's organization; show a choice if there is not exactly one."""
    found = await page.person.get(_API, limit=200)
    shared = [each for each in found["organizations"] if not each["is_personal"]]
    if len(shared) == 1:
        return page.go(f"{PEOPLE}/{shared[0]['id']}")
    return page.show("organizations.html", organizations=shared)


_PEOPLE: Final = FormPage(_ONE, _show, _PERSON)
_ONE_MEMBER: Final = FormPage(_MEMBER, _show_member, _PERSON)
show_people, show_member = _PEOPLE.get(), _ONE_MEMBER.get()


@_PEOPLE.form("/users")
async def add_person(page: InjectedPage) -> PageResponse:
    """Create a person, and show the one-time password."""
    body = {
        "email": page.text("email"),
        "organization": page.parameters["organization"],
    }
    made = await page.person.post("/v1/users", body, once=page.once)
    return show_one_time_password(page, made["user"])


@_PEOPLE.form("/invitations")
async def invite(page: InjectedPage) -> PageResponse:
    """Invite an e-mail address, and show the code to hand over."""
    body = {"email": page.text("email"), "role": page.form.get("role", "member")}
    path = f"{page.fill(_ONE_API)}/invitations"
    made = await page.person.post(path, body, once=page.once)
    organization = (await page.person.get(page.fill(_ONE_API)))["organization"]
    return page.show(
        "invitation.html",
        organization=organization,
        invitation=made["invitation"],
    )


leave_secret = leaving([f"{_ONE}/users", f"{_ONE}/invitations"], _ONE, _PERSON)


@post(f"{_ONE}/invitations/{{invitation:str}}/delete", opt=_PERSON)
async def revoke_invitation(page: InjectedPage) -> PageResponse:
    """Revoke an invitation."""
    await page.person.change("DELETE", page.fill(f"{_ONE_API}/invitations/{{invitation}}"))
    return page.go(page.fill(_ONE), "The invitation was revoked. Its code works no more.")


def show_one_time_password(page: PageRequest, user: dict[str, Any]) -> PageResponse:
    """Show a person's new password, which cannot be shown again."""
    return page.show("one_time_password.html", user=user, back=page.fill(_ONE))


@_ONE_MEMBER.form("/role")
async def change_role(page: InjectedPage) -> PageResponse:
    """Change the member's role in the organization."""
    return await _change(page, _MEMBER_API, {"role": page.form.get("role", "")})


@_ONE_MEMBER.form("/status")
async def change_status(page: InjectedPage) -> PageResponse:
    """Suspend or resume the person."""
    return await _change(page, _USER_API, {"status": page.form.get("status", "")})


@_ONE_MEMBER.form("/password")
async def reset_password(page: InjectedPage) -> PageResponse:
    """Ask whether to reset the password; with ``confirmed`` in the form, show the new one."""
    if "confirmed" not in page.form:
        return await _ask(
            page,
            "Reset the password of",
            "The person's sessions end at once. The next page shows a one-time password, once.",
            "Reset the password",
        )
    path = page.fill(f"{_USER_API}/reset-password")
    made = await page.person.post(path, once=page.once)
    return show_one_time_password(page, made["user"])


leave_password = leaving(f"{_MEMBER}/password", _MEMBER, _PERSON)


@_ONE_MEMBER.form("/remove")
async def remove_member(page: InjectedPage) -> PageResponse:
    """Ask whether to remove the member; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        return await _ask(
            page,
            "Remove",
            "The roles in the organization's accounts go too, and sessions in them end. The person"
            " stays, and can be invited again.",
            "Remove from the organization",
        )
    await page.person.change("DELETE", page.fill(_MEMBER_API))
    return page.go(page.fill(_ONE), "The member was removed.")


@_ONE_MEMBER.form("/delete")
async def delete_person(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the person; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        return await _ask(
            page,
            "Delete",
            "The person can sign in no more, and has no role. It cannot be restored.",
            "Delete the person",
        )
    await page.person.change("DELETE", page.fill(_USER_API))
    return page.go(page.fill(_ONE), "The person was deleted.")


async def _change(page: PageRequest, api: str, changes: dict[str, str]) -> PageResponse:
    await page.person.change("PATCH", page.fill(api), changes)
    return page.go(page.fill(_MEMBER), "The change was saved.")


async def _ask(page: PageRequest, act: str, words: str, button: str) -> PageResponse:
    email = (await page.person.get(page.fill(_USER_API)))["user"]["email"]
    title, back = f"{act} {email}?", page.fill(_MEMBER)
    return page.show("question.html", title=title, words=words, button=button, back=back)
