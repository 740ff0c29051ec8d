"""Refusals that a page shows beside the form that was sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, NamedTuple, TypeVar, cast

from registry.console.control_plane import Refused
from registry.console.page_request import PageRequest, PageResponse

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[PageResponse]])

_INLINE: Final = (400, 403, 404, 409)
_SENT_BEFORE: Final = (
    "This form was sent before with something else in it, and has made something then: look for it"
    " on this page. To make another, fill in the form again."
)


class Complaint(NamedTuple):
    """A message about a form."""

    status: int = 200
    text: str = ""
    """A sentence."""
    field: str = ""
    """The field of ``/v1`` that the answer names, if any."""


NO_COMPLAINT: Final = Complaint()
NOTHING_SAVED: Final = "Nothing: it was deleted."
"""What is saved now, if there is no document any more."""
OUTDATED: Final = (
    "This has changed since you opened the page, so nothing was saved. What you wrote is still in"
    " the form, and what is saved now is shown below it. Bring the two together and save again:"
    " that replaces what is saved now."
)


def complaint_of(error: Refused) -> Complaint:
    """Return the complaint that an error means.

    Raises:
        Refused: `error` itself, which is not the form's: a 401, a 429 or a failure, or a question
            before own rights are lost.

    """
    if takes_own_rights(error):
        raise error
    if error.code == "IDEMPOTENCY_KEY_REUSED":
        return Complaint(409, _SENT_BEFORE)
    if error.status not in _INLINE:
        raise error
    if is_outdated(error):
        return Complaint(error.status, OUTDATED)
    return Complaint(error.status, error.sentence, str(error.params.get("field", "")))


def is_outdated(error: Refused) -> bool:
    """Return True if the document was changed after its form was rendered."""
    return error.status == 409 and "revision" in error.params


def takes_own_rights(error: Refused) -> bool:
    """Return True if a change was refused that takes rights from its own caller.

    The error page then asks whether to make it all the same.
    """
    return error.status == 409 and error.params.get("reason") == "own_rights"


class WrongInput(Exception):
    """Raised for a field of a form that cannot be read."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.complaint = Complaint(400, words, field)


Show = Callable[[PageRequest, Complaint], Awaitable[PageResponse]]
"""Returns the page of a form, with a complaint about what was sent."""


def beside_form(show: Show) -> Callable[[Handler], Handler]:
    """Return a decorator for handlers of forms: show refusals and wrong input by `show`.

    The page is the first argument of what it decorates. Errors that are not about the form are
    raised; see `complaint_of`.
    """

    def decorate(handle: Handler) -> Handler:
        @wraps(handle)
        async def answer(page: PageRequest, *args: object, **kwargs: object) -> PageResponse:
            try:
                return await handle(page, *args, **kwargs)
            except WrongInput as wrong:
                return await show(page, wrong.complaint)
            except Refused as error:
                return await show(page, complaint_of(error))

        return cast("Handler", answer)

    return decorate
