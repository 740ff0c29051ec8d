"""Who may do what on the data plane: the seam, and the open door of ``entrepot dev``."""

from __future__ import annotations

from typing import Protocol

from registry.distribution.body import Scope
from registry.oci.reference import Name

PULL = ("pull",)
PUSH = ("pull", "push")
DELETE = ("delete",)


class Grant(Protocol):
    """What one request may see beyond the repository it names."""

    @property
    def account(self) -> str:
        """Return the handle of the caller's own account, which the catalog lists."""
        ...

    def may_pull(self, name: Name) -> bool:
        """Say whether the caller may pull from another repository, to mount from it."""
        ...


class Access(Protocol):
    """Decides each request, from its credential, before any of its body is read."""

    def authorize(self, scope: Scope, name: Name | None, actions: tuple[str, ...]) -> Grant:
        """Return what the caller is granted.

        Raises:
            Unauthenticated, AccessDenied.

        """
        ...


class OpenAccess:
    """Everyone on this machine is the one account: ``entrepot dev``, loopback only (E4)."""

    def __init__(self, account: str) -> None:
        self._account = account

    @property
    def account(self) -> str:
        """Return the one account's handle."""
        return self._account

    def authorize(self, scope: Scope, name: Name | None, actions: tuple[str, ...]) -> Grant:
        """Grant everything."""
        del scope, name, actions
        return self

    def may_pull(self, name: Name) -> bool:
        """Grant pulls from every repository of the account."""
        return name.handle == self._account
