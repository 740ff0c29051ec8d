"""Responses to errors: a redirect to the sign-in, or a page with the error."""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import quote

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from litestar.response import Response
from litestar.types import ExceptionHandlersMap

from cloudcore.errors import InvalidInput, PayloadTooLarge, PlatformError, Unauthenticated
from cloudcore.web.envelope import render
from registry.console.addresses import HOME, ROLES, SIGN_IN, SIGNED_OUT
from registry.console.admission import no_such_page
from registry.console.control_plane import Refused, refused_of
from registry.console.form_refusals import takes_own_rights
from registry.console.page_request import Moved, PageRequest, PageResponse, page_of
from registry.console.pages.repositories.repositories import path_of
from registry.console.sessions import NoRole, RoleRefused, SignedOut

_log = logging.getLogger(__name__)

_Request = Request[Any, Any, Any]


def _ask_to_sign_in(request: _Request, _: SignedOut) -> PageResponse:
    """Redirect to the sign-in, which returns to the requested page if the request is a GET.

    A script's request is refused instead: the script would take the sign-in page for a response.
    """
    page = page_of(request.scope)
    page.forget()
    if request.method == "PUT":
        return _refuse_script(page, "your session has ended; sign in again")
    if request.method != "GET":
        return page.go(
            SIGNED_OUT, "Your sign-in had ended. If you sent a form, sign in and send it again."
        )
    query = request.scope["query_string"].decode("latin-1")
    wanted = f"{page.path}?{query}" if query else page.path
    return page.go(f"{SIGN_IN}?to={quote(wanted)}")


def _ask_for_a_role(request: _Request, _: NoRole) -> PageResponse:
    page = page_of(request.scope)
    if request.method == "PUT":
        return _refuse_script(page, "you act in no role; choose one")
    return page.go(ROLES)


def _refuse_script(page: PageRequest, message: str) -> PageResponse:
    status, body = render(Unauthenticated(message), page.request_id)
    return Response(body, status_code=status)


def _show_refused_role(request: _Request, refused: RoleRefused) -> PageResponse:
    """Show why the role refuses the person, and what helps; the session stays, without a role."""
    page = page_of(request.scope)
    page.cookie_session = msgspec.structs.replace(page.session, acting=None)
    page.keep(page.cookie_session)
    return page.show("role_refused.html", 403, refused=refused)


def _redirect_moved(request: _Request, error: Moved) -> PageResponse:
    """Redirect to the page's current address, with the same query."""
    query = request.scope["query_string"].decode("latin-1")
    return page_of(request.scope).go(f"{error.path}?{query}" if query else error.path)


def _show_refusal(request: _Request, error: Refused) -> PageResponse:
    """Show an error of ``/v1``; for a 401, end the session.

    If a change would take away the caller's own rights, ask whether to make the change anyway.
    """
    if error.status == 401:
        return _ask_to_sign_in(request, SignedOut())
    page = page_of(request.scope)
    if takes_own_rights(error):
        back = "/".join(page.path.split("/")[:4])  # /console/policies/<id>
        return page.show("own_rights.html", error.status, back=back)
    return page.show(
        "error.html", error.status, error=error, by_role=True, kept=_deleted_page(page)
    )


def _show_error(request: _Request, error: PlatformError) -> PageResponse:
    page = page_of(request.scope)
    status, body = render(error, page.request_id)
    return page.show(
        "error.html",
        status,
        error=refused_of(status, body["error"]),
        by_role=False,
        kept=_deleted_page(page),
    )


def _show_http_error(request: _Request, error: HTTPException) -> PageResponse:
    """Show an error that the framework raised before calling a handler."""
    match error.status_code:
        case 404 | 405:
            return _show_error(request, no_such_page())
        case 413:
            return _show_error(request, PayloadTooLarge("the form is too large"))
        case status if status < 500:
            return _show_error(request, InvalidInput("the request cannot be read"))
        case _:
            return _show_failure(request, error)


def _show_failure(request: _Request, error: Exception) -> PageResponse:
    """Log an unexpected exception; show only its request id."""
    request_id = page_of(request.scope).request_id
    _log.error("unexpected failure", exc_info=error, extra={"request_id": request_id})
    return _show_error(request, PlatformError(""))


def _deleted_page(page: PageRequest) -> str:
    """Return the path of the list of deleted items that the missing page may be about, or ""."""
    if {"digest", "tag"} & page.parameters.keys() and "repository" in page.parameters:
        return path_of(page).tab("deleted")
    is_one = page.address is not None or page.path.startswith(f"{HOME}/")
    return f"{HOME}/deleted" if is_one else ""


EXCEPTION_HANDLERS: Final[ExceptionHandlersMap] = {
    SignedOut: _ask_to_sign_in,
    NoRole: _ask_for_a_role,
    RoleRefused: _show_refused_role,
    Moved: _redirect_moved,
    Refused: _show_refusal,
    PlatformError: _show_error,
    HTTPException: _show_http_error,
    Exception: _show_failure,
}
