"""How a service of the platform acts in a role of an account: what families ask of identity.

A role lets a service in as it lets in anyone: its trust policy allows the service's principal,
``crn:iam:::service/<service>``. Who makes the service act in a role, as the owner of an instance
pool does, must be allowed `PASS_ROLE` on it; else whoever may make a pool could act in each role
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
    """A role does not let the service in (any more); the message says why in one line."""


class PassedRole(NamedTuple):
    """A role that a request names."""

    id: str
    name: str


class RoleSession(NamedTuple):
    """A session in both its forms: a token for ``/v1``, a key pair for signatures."""

    id: str
    access_token: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    began_at: int
    """Microseconds since the epoch."""
    expires_at: int
    """The end of both forms."""
    account_id: str
    account_handle: str
    role_id: str

    def __repr__(self) -> str:
        """Return what is no secret."""
        return f"RoleSession({self.id!r})"


class ServiceRoles(Protocol):
    """Acts in roles as one service of the platform."""

    def resolve(
        self, tx: Connection, account_id: str, field: str, value: str, authorize: Authorize
    ) -> PassedRole:
        """Return the role that `value` in a request's `field` means: an id, a name or a CRN.

        `authorize` is the caller's right to `PASS_ROLE`; see `cloudcore.resource_references` for
        what it raises besides.

        Raises:
            InvalidInput: the role does not trust the service, or is the platform's own.

        """
        ...

    def name_of(self, tx: Connection, account_id: str, role_id: str) -> str | None:
        """Return the name of a role; None if it was deleted."""
        ...

    async def begin(
        self,
        account_id: str,
        role_id: str,
        name: str,
        seconds: int = 3600,
        *,
        is_wanted: Callable[[Connection], bool] = lambda _tx: True,
    ) -> RoleSession:
        """Begin a session of a role for what is called `name`, such as an instance, by its id.

        It lasts `seconds`, at least 900 and at most as long as the role allows. Those that began
        before go on. `is_wanted` returns False if what it is for is gone, and else holds that until
        the session is stored: then none begins after `end`.

        Raises:
            RoleRefused: the role was deleted, does not trust the service, its account is suspended,
                or it is not wanted.

        """
        ...

    async def live(self, session_ids: Sequence[str]) -> Collection[str]:
        """Return those sessions that are neither over nor revoked."""
        ...

    def end(self, tx: Connection, account_id: str, name: str, now: int) -> None:
        """Revoke all sessions of what is called `name`, in both forms; there may be none.

        Call it after the row of that was locked or deleted.
        """
        ...

    def platform_role(
        self, tx: Connection, account_id: str, name: str, policy: Mapping[str, Any], now: int
    ) -> str:
        """Return the id of a role of the service's own in an account; make it if there is none.

        It trusts the service alone, and has this identity policy alone. Its owner sees both, and
        can change neither.
        """
        ...

    def remove_platform_role(self, tx: Connection, account_id: str, role_id: str, now: int) -> None:
        """Delete such a role with its policy and its sessions, if it is there."""
        ...


SERVICE_ROLES: Final[Port[Callable[[str], ServiceRoles]]] = Port("platform.service_roles")
"""Returns what acts as the service of a name: that of the family, ``compute``."""


def service_crn(service: str) -> str:
    """Return a service as trust policies name it."""
    return SERVICE + service
