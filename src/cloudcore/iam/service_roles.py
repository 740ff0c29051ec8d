"""Port for services of the platform that act in roles of accounts; identity implements it.

The trust policy of a role must allow the service's principal, ``crn:iam:::service/<service>``. A
caller that makes the service act in a role, such as the owner of an instance pool, needs
`PASS_ROLE` on that role; otherwise the right to create pools would include the rights of every role
that trusts the service.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from cloudcore.db.base import Connection
from cloudcore.iam.policy import SERVICE
from cloudcore.ports import Port
from cloudcore.resource_references import Authorize

PASS_ROLE: Final = "iam:PassRole"  # noqa: S105 - an action


class RoleRefused(Exception):
    """A role does not trust the service, or no longer does; the message is the reason."""


class PassedRole(NamedTuple):
    """A role that a request passes to a service."""

    id: str
    name: str


class RoleSession(NamedTuple):
    """A role session with two credentials: a token for ``/v1``, and a key pair for signatures."""

    id: str
    access_token: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    began_at: int
    """Microseconds since the epoch."""
    expires_at: int
    """When both credentials expire, in microseconds since the epoch."""
    account_id: str
    account_handle: str
    role_id: str

    def __repr__(self) -> str:
        """Omit the secrets."""
        return f"RoleSession({self.id!r})"


class ServiceRoles(Protocol):
    """Lets one service of the platform act in roles of accounts."""

    def resolve(
        self, tx: Connection, account_id: str, field: str, value: str, authorize: Authorize
    ) -> PassedRole:
        """Return the role that the `field` of a request names: `value` is an id, a name or a CRN.

        `authorize` raises unless the caller has the right to `PASS_ROLE`. See
        `cloudcore.resource_references` for the other errors.

        Raise `InvalidInput` if the role does not trust the service, or belongs to the platform.
        """

    def name_of(self, tx: Connection, account_id: str, role_id: str) -> str | None:
        """Return the name of a role; None if it was deleted."""

    async def begin(
        self,
        account_id: str,
        role_id: str,
        name: str,
        seconds: int = 3600,
        *,
        is_wanted: Callable[[Connection], bool] = lambda _tx: True,
    ) -> RoleSession:
        """Begin a session of a role under a `name`, such as the id of an instance.

        It lasts `seconds`, at least 900 and at most as long as the role allows. Earlier sessions
        continue. `is_wanted` returns False if the resource of the session is gone, and otherwise
        locks the resource until the session is stored, so that no session begins after `end`.

        Raise `RoleRefused` if the role was deleted or does not trust the service, its account is
        suspended, or `is_wanted` returns False.
        """

    async def live(self, session_ids: Sequence[str]) -> Collection[str]:
        """Return those of `session_ids` whose sessions are neither expired nor revoked."""

    def end(self, tx: Connection, account_id: str, name: str, now: int) -> None:
        """Revoke all sessions with this `name`, both their tokens and their key pairs.

        Before the call, lock or delete the row of the resource that the sessions belong to.
        """

    def platform_role(
        self, tx: Connection, account_id: str, name: str, policy: Mapping[str, Any], now: int
    ) -> str:
        """Return the id of the service's own role in an account; create it if it is missing.

        The role trusts only the service, and has only the identity policy `policy`. The account can
        see the role and its policy, but can change neither.
        """

    def remove_platform_role(self, tx: Connection, account_id: str, role_id: str) -> None:
        """Delete a role made by `platform_role`, if it exists, with its policy and sessions."""


SERVICE_ROLES: Final[Port[Callable[[str], ServiceRoles]]] = Port("platform.service_roles")
"""A function that returns the `ServiceRoles` of a service, by family name, such as ``compute``."""


def service_crn(service: str) -> str:
    """Return the CRN of a service, as trust policies name it."""
    return SERVICE + service
