"""Pages with forms: a refused form is shown again as it was sent, with the reason at its field."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Final, NamedTuple, TypeVar, cast

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from registry.console.control_plane import Refused
from registry.console.page_request import InjectedPage, PageRequest, PageResponse

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[PageResponse]])

_INLINE: Final = (400, 403, 404, 409)
_SENT_BEFORE: Final = (
    "This form was sent before with something else in it, and has made something then: look for it"
    " on this page. To make another, fill in the form again."
)


class FormRefusal(NamedTuple):
    """A message to show beside a form, with the response's status and the field it is about."""

    status: int = 200
    text: str = ""
    """A sentence."""
    field: str = ""
    """The field on ``/v1`` that the error names; empty if it names none."""

    @property
    def is_outdated(self) -> bool:
        """Return True if the saved document has changed since the form was rendered."""
        return self.text == OUTDATED


NO_REFUSAL: Final = FormRefusal()
DELETED_TEXT: Final = "Nothing: it was deleted."
"""Shown in place of a saved document that was deleted."""
OUTDATED: Final = (
    "This has changed since you opened the page, so nothing was saved. What you wrote is still in"
    " the form, and what is saved now is shown below it. Bring the two together and save again:"
    " that replaces what is saved now."
)


def refusal_of(error: Refused) -> FormRefusal:
    """Convert an error of ``/v1`` to a refusal beside the form.

    Raise `error` again if the form cannot show it: a 401, a 429, a failure, or a refusal because
    the caller would lose rights.
    """
    if takes_own_rights(error):
        raise error
    if error.code == "IDEMPOTENCY_KEY_REUSED":
        return FormRefusal(409, _SENT_BEFORE)
    if error.status not in _INLINE:
        raise error
    if is_outdated(error):
        return FormRefusal(error.status, OUTDATED)
    return FormRefusal(error.status, error.sentence, str(error.params.get("field", "")))


def is_outdated(error: Refused) -> bool:
    """Return True if a change was refused because the saved document has another revision."""
    return error.status == 409 and "revision" in error.params


def takes_own_rights(error: Refused) -> bool:
    """Return True if a change was refused because the caller would lose rights by it.

    The error page asks whether to make the change anyway.
    """
    return error.status == 409 and error.params.get("reason") == "own_rights"


class WrongInput(Exception):
    """A field of a form cannot be parsed."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.refusal = FormRefusal(400, words, field)


NOT_RENAMED: Final[Mapping[str, str]] = {}
Show = Callable[[PageRequest, FormRefusal], Awaitable[PageResponse]]
"""Returns the page of a form, with a refusal of the sent form."""


def beside_form(
    show: Show,
    document: str = "",
    *,
    is_nested: bool = False,
    fields: Mapping[str, str] = NOT_RENAMED,
    reasons: Mapping[str, str] = NOT_RENAMED,
) -> Callable[[Handler], Handler]:
    """Return a decorator for form handlers that shows refusals and wrong input with `show`.

    The page is the handler's first argument. Errors that are not about the form are raised; see
    `refusal_of`. `document` is a form field with JSON; a refusal names the line in the JSON.

    A refusal is shown at the form field to which `reasons` maps its reason; else at the field to
    which `fields` maps the field's name on ``/v1``; else at the field of that name. With
    `is_nested`, only the last part of the name on ``/v1`` counts.
    """

    def decorate(handle: Handler) -> Handler:
        @wraps(handle)
        async def answer(page: PageRequest, *args: object, **kwargs: object) -> PageResponse:
            try:
                return await handle(page, *args, **kwargs)
            except WrongInput as wrong:
                return await show(page, wrong.refusal)
            except Refused as error:
                refusal, value = refusal_of(error), error.params.get("value")
                written = page.form.get(document, "")
                if isinstance(value, str) and (line := line_of(value, written)):
                    refusal = refusal._replace(text=f"Line {line}: {refusal.text}")
                field = refusal.field.rpartition(".")[2] if is_nested else refusal.field
                here = reasons.get(error.params.get("reason", "")) or fields.get(field, field)
                return await show(page, refusal._replace(field=here))

        return cast("Handler", answer)

    return decorate


def line_of(value: str, written: str) -> int:
    """Return the number of the first line of `written` that contains the JSON string, or 0."""
    wanted = msgspec.json.encode(value).decode()
    for number, line in enumerate(written.splitlines(), 1):
        if wanted in line:
            return number
    return 0


def leaving(
    paths: str | list[str], to: str, opt: Mapping[str, object] | None = None
) -> HTTPRouteHandler:
    """Return a handler for reloads of a page with a secret, which is shown only once.

    It redirects from `paths`, to which the forms are posted, to the page at the route `to`.
    """

    @get(paths, opt=opt)
    async def leave(page: InjectedPage) -> PageResponse:
        return page.go(page.fill(to))

    return leave


class FormPage(NamedTuple):
    """A page with forms, which shows their refusals."""

    path: str
    """The path of the page's route."""
    show: Show
    opt: Mapping[str, object] | None = None
    """The ``opt`` of the routes of the page and of its forms."""
    document: str = ""
    """The form field with JSON; empty if no form has one."""

    def get(self) -> HTTPRouteHandler:
        """Return the handler that shows the page."""

        @get(self.path, opt=self.opt)
        async def show(page: InjectedPage) -> PageResponse:
            return await self.show(page, NO_REFUSAL)

        return show

    def form(
        self,
        below: str = "",
        *,
        is_nested: bool = False,
        fields: Mapping[str, str] = NOT_RENAMED,
        reasons: Mapping[str, str] = NOT_RENAMED,
    ) -> Callable[[Handler], HTTPRouteHandler]:
        """Return a decorator for the handler of a form that is posted to a path `below` the page.

        Refusals are shown as `beside_form` does.
        """
        route = post(f"{self.path}{below}", opt=self.opt)
        beside = beside_form(
            self.show, self.document, is_nested=is_nested, fields=fields, reasons=reasons
        )
        return lambda handle: route(beside(handle))
