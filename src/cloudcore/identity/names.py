"""Names of what identity keeps, and the three ways to refer to it: UUID, CRN or name (E1, D)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound
from cloudcore.identity.rows.accounts import find_account
from cloudcore.uuids import parse_uuid

NAME_PATTERN: Final = "^[a-z0-9][a-z0-9._-]{0,62}$"
HANDLE_PATTERN: Final = "^[a-z0-9]+(-[a-z0-9]+)*$"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_HANDLE: Final = re.compile(r"(?=.{2,32}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){0,8}[A-Za-z0-9-]{1,63}"
)


class IamReference(NamedTuple):
    """What a caller called a thing by; one of the two is set."""

    id: str | None = None
    name: str | None = None


def iam_crn(scope_id: str, kind: str, name: str) -> str:
    """Return the CRN of a thing of identity; `scope_id` is its account's, or organization's."""
    return f"crn:iam::{scope_id}:{kind}/{name}"


def check_name(name: str) -> None:
    """Refuse what is no name; one shaped like an id would be taken for it."""
    if not _NAME.fullmatch(name) or parse_uuid(name):
        raise InvalidInput(
            "a name is 1 to 63 of a-z 0-9 . _ -, begins with a letter or digit and is no UUID",
            field="name",
            reason="malformed",
        )


def check_handle(handle: str) -> None:
    """Refuse what cannot be an account's handle."""
    if not _HANDLE.fullmatch(handle):
        raise InvalidInput(
            "a handle is 2 to 32 of a-z 0-9, in parts joined by single hyphens",
            field="handle",
            reason="malformed",
        )


def email_address(text: str) -> str:
    """Return an e-mail address in the one form it is kept in, lower case."""
    if len(text) > 254 or not _EMAIL.fullmatch(text):
        raise InvalidInput("this is no e-mail address", field="email", reason="malformed")
    return text.lower()


def parse_iam_reference(
    tx: Connection, text: str, *, field: str, kind: str, account_id: str
) -> IamReference:
    """Return what `text` refers to among the things of this `kind` in an account.

    Raises:
        InvalidInput: it is no reference (``malformed``, ``malformed_crn``), or one to another
            service, region or account (``wrong_service``, ``foreign_region``,
            ``foreign_account``).

    """
    if (found := parse_uuid(text)) is not None:
        return IamReference(id=found)
    if not text.startswith("crn:"):
        if not _NAME.fullmatch(text):
            raise InvalidInput(
                f"{field} is a UUID, a name or a CRN", field=field, reason="malformed"
            )
        return IamReference(name=text)
    crn = _parse_crn(text, field)
    if crn.service != "iam":
        raise _refusal(field, "wrong_service")
    if crn.region:
        raise _refusal(field, "foreign_region")
    if crn.type != kind or not _NAME.fullmatch(crn.name):
        raise _refusal(field, "malformed_crn")
    if crn.account != account_id:
        account = find_account(tx, account_id)
        if account is None or crn.account != account.handle:
            raise _refusal(field, "foreign_account")
    return IamReference(name=crn.name)


def missing(kind: str) -> NotFound:
    """Return the error for a thing that is not there, or not the caller's to know of."""
    return NotFound(f"there is no such {kind}")


def _parse_crn(text: str, field: str) -> Crn:
    try:
        return Crn.parse(text)
    except InvalidInput:
        raise _refusal(field, "malformed_crn") from None


def _refusal(field: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{field} does not name such a thing here", field=field, reason=reason)


def person_crn(organization_id: str, user_id: str) -> str:
    """Return the CRN of a person, whose personal organization this is."""
    return iam_crn(organization_id, "user", user_id)
