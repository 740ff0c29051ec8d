"""One member of an organization: role, password, suspension and removal."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.admission import Requires
from registry.console.control_plane import Refused, unless_refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.people import MEMBER_ROLES, show_one_time_password
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import PEOPLE

_ORGANIZATION: Final = f"{PEOPLE}/{{organization:str}}"
_ONE: Final = f"{_ORGANIZATION}/members/{{user:str}}"
_PERSON: Final = {"requires": Requires.PERSON}


@get(_ONE, opt=_PERSON)
async def show_member(page: InjectedPage) -> PageResponse:
    """Show a member."""
    return await _show(page)


@post(f"{_ONE}/role", opt=_PERSON)
async def change_role(page: InjectedPage) -> PageResponse:
    """Change the member's role in the organization."""
    return await _change(page, _member_api(page), {"role": page.form.get("role", "")})


@post(f"{_ONE}/status", opt=_PERSON)
async def change_status(page: InjectedPage) -> PageResponse:
    """Suspend or resume the person."""
    return await _change(page, _user_api(page), {"status": page.form.get("status", "")})


@post(f"{_ONE}/password", opt=_PERSON)
async def reset_password(page: InjectedPage) -> PageResponse:
    """Ask whether to reset the password; with ``confirmed`` in the form, show the new one."""
    if "confirmed" not in page.form:
        return await _ask(page, "password")
    try:
        path, once = f"{_user_api(page)}/reset-password", page.form.get("once", "")
        made = await page.person.post(path, once=once)
    except Refused as error:
        return await _show(page, complaint_of(error))
    return show_one_time_password(page, made["user"])


@get(f"{_ONE}/password", opt=_PERSON)
async def leave_password(page: InjectedPage) -> PageResponse:
    """Redirect a browser that asks again for a password that was shown once."""
    return page.go(_path(page))


@post(f"{_ONE}/remove", opt=_PERSON)
async def remove_member(page: InjectedPage) -> PageResponse:
    """Ask whether to remove the member; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        return await _ask(page, "remove")
    try:
        await page.person.change("DELETE", _member_api(page))
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(_people(page), "member-removed")


@post(f"{_ONE}/delete", opt=_PERSON)
async def delete_person(page: InjectedPage) -> PageResponse:
    """Ask whether to delete the person; with ``confirmed`` in the form, do it."""
    if "confirmed" not in page.form:
        return await _ask(page, "delete")
    try:
        await page.person.change("DELETE", _user_api(page))
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(_people(page), "person-deleted")


def _people(page: PageRequest) -> str:
    return f"{PEOPLE}/{page.parameters['organization']}"


def _path(page: PageRequest) -> str:
    return f"{_people(page)}/members/{page.parameters['user']}"


def _user_api(page: PageRequest) -> str:
    return f"/v1/users/{page.parameters['user']}"


def _member_api(page: PageRequest) -> str:
    return f"/v1/organizations/{page.parameters['organization']}/members/{page.parameters['user']}"


async def _change(page: PageRequest, path: str, changes: dict[str, str]) -> PageResponse:
    try:
        await page.person.change("PATCH", path, changes)
    except Refused as error:
        return await _show(page, complaint_of(error))
    return page.go(_path(page), "member-saved")


async def _ask(page: PageRequest, question: str) -> PageResponse:
    user = (await page.person.get(_user_api(page)))["user"]
    return page.show("member_question.html", user=user, base=_path(page), question=question)


async def _show(page: PageRequest, complaint: Complaint = NO_COMPLAINT) -> PageResponse:
    """Show the person, and the role if the person is on the first pages of members."""
    api = f"/v1/organizations/{page.parameters['organization']}"
    organization = (await page.person.get(api))["organization"]
    user = (await page.person.get(_user_api(page)))["user"]
    return page.show(
        "member.html",
        complaint.status,
        organization=organization,
        user=user,
        role=await unless_refused(_role(page)),
        base=_path(page),
        back=_people(page),
        is_self=user["id"] == page.session.user_id,
        member_roles=MEMBER_ROLES,
        complaint=complaint,
    )


async def _role(page: PageRequest) -> str:
    """Return the person's role in the organization; an empty text if it is not a member."""
    path, marker = f"/v1/organizations/{page.parameters['organization']}/members", None
    while True:
        found = await page.person.get(path, marker=marker, limit=200)
        for each in found["members"]:
            if each["user"]["id"] == page.parameters["user"]:
                return str(each["role"])
        marker = found["meta"].get("marker")
        if marker is None:
            return ""


HANDLERS: Final = (
    show_member,
    change_role,
    change_status,
    reset_password,
    leave_password,
    remove_member,
    delete_person,
)
