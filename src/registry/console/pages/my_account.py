"""The person's own account: its password."""

from __future__ import annotations

from typing import Final

from litestar import get, post

from registry.console.admission import Requires
from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageResponse
from registry.console.pages.refusals import NO_COMPLAINT, Complaint, complaint_of
from registry.console.paths import MY_ACCOUNT

_PERSON: Final = {"requires": Requires.PERSON}


@get(MY_ACCOUNT, opt=_PERSON)
async def show_my_account(page: InjectedPage) -> PageResponse:
    """Show the form for another password."""
    return page.show("my_account.html", complaint=NO_COMPLAINT)


@post(MY_ACCOUNT, opt=_PERSON)
async def change_password(page: InjectedPage) -> PageResponse:
    """Change the password; the form's passwords are never shown again."""
    form = page.form
    new = form.get("password", "")
    if new != form.get("again", ""):
        differ = Complaint(400, "The new password was typed in two ways.", "password")
        return page.show("my_account.html", 400, complaint=differ)
    body = {"current_password": form.get("current_password", ""), "password": new}
    try:
        await page.person.change("PUT", "/v1/users/me/password", body)
    except Refused as error:
        complaint = complaint_of(error)
        return page.show("my_account.html", complaint.status, complaint=complaint)
    return page.go(MY_ACCOUNT, "password-changed")


HANDLERS: Final = (show_my_account, change_password)
