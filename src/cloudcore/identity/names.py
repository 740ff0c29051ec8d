"""Names of identity's resources: checks and CRNs; and identity's quotas."""

from __future__ import annotations

import re
from typing import Final

from cloudcore.errors import InvalidInput, NotFound
from cloudcore.iam.principal import SourceIdentity
from cloudcore.quotas.quota import Quota

NAME_PATTERN: Final = "^[a-z0-9][a-z0-9._-]{0,62}$"
HANDLE_PATTERN: Final = "^[a-z0-9]+(-[a-z0-9]+)*$"

_HANDLE: Final = re.compile(r"(?=.{2,32}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){0,8}[A-Za-z0-9-]{1,63}"
)


def iam_crn(scope_id: str, kind: str, name: str) -> str:
    """Return the CRN of an identity resource; `scope_id` is its account's or organization's id."""
    return f"crn:iam::{scope_id}:{kind}/{name}"


def source_of_program(account_id: str, name: str) -> SourceIdentity:
    """Return a service account as the `SourceIdentity` of a request."""
    return SourceIdentity(iam_crn(account_id, "service-account", name), name)


def person_crn(organization_id: str, user_id: str) -> str:
    """Return the CRN of a person; `organization_id` is the personal organization."""
    return iam_crn(organization_id, "user", user_id)


def is_handle(text: str) -> bool:
    """Return True if `text` is a well-formed account handle."""
    return _HANDLE.fullmatch(text) is not None


def check_handle(handle: str) -> None:
    """Raise `InvalidInput` if an account handle is malformed."""
    if not is_handle(handle):
        raise InvalidInput(
            "a handle is 2 to 32 of a-z 0-9, in parts joined by single hyphens",
            field="handle",
            reason="malformed",
        )


def email_address(text: str) -> str:
    """Return an e-mail address in lower case; raise `InvalidInput` if it is malformed."""
    if len(text) > 254 or not _EMAIL.fullmatch(text):
        raise InvalidInput("this is no e-mail address", field="email", reason="malformed")
    return text.lower()


def missing(kind: str) -> NotFound:
    """Return the error for a resource that does not exist or is not visible to the caller."""
    return NotFound(f"there is no such {kind}")


ACCOUNTS: Final = Quota("accounts", 100, "accounts", per="organization")
OWNED: Final = Quota(
    "organizations", 10, "organizations that a person owns, without the personal one", per="person"
)
ROLE_SESSIONS: Final = Quota("role_sessions", 5_000, "open sessions of roles")

QUOTAS: Final = (ACCOUNTS, OWNED, ROLE_SESSIONS)
