"""Who may do what on the data plane: the seam, and the open door of ``entrepot dev``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from cloudcore.serving.body import Scope
from registry.oci.reference import Name
from registry.services.access import Rights


class Need(NamedTuple):
    """What a request needs, and what its client is told to ask for."""

    action: str
    """The one action that must be granted."""
    asked: str
    """The actions of the challenge, in the grammar of scopes."""
    may_mount: bool = False
    """The query may name a second repository, of which a mount needs a pull."""


PULL = Need("pull", "pull")
PUSH = Need("push", "pull,push")
MOUNT = Need("push", "pull,push", may_mount=True)
PROBE = Need("pull", "pull,push")
"""HEAD of a blob: the Python oras client opens a push with it and keeps its first token."""
DELETE = Need("delete", "delete")
CATALOG = Need("*", "*")


class Listing(NamedTuple):
    """What a caller may see of the catalog."""

    account: str
    """The handle of the caller's own account."""
    may_describe: Callable[[Name], Awaitable[bool]]


class Grant(Rights, Protocol):
    """What one request was granted, and may find out beyond it."""

    @property
    def counts_pulls(self) -> bool:
        """Say whether a pull by this caller is recorded as one."""
        ...

    async def listing(self) -> Listing:
        """Return the account whose repositories the catalog lists, and which of them."""
        ...


class Access(Protocol):
    """Decides each request, from its credential, before any of its body is read."""

    def authorize(self, scope: Scope, name: Name | None, need: Need | None) -> Grant:
        """Return what the caller is granted; without a `need` any good credential will do.

        Raises:
            TokenRequired, TokenDenied.

        """
        ...


class OpenAccess:
    """Everyone on this machine is the one account: ``entrepot dev``, loopback only (E4)."""

    principal = ""
    counts_pulls = True

    def __init__(self, account: str) -> None:
        self._account = account

    def authorize(self, scope: Scope, name: Name | None, need: Need | None) -> Grant:
        """Grant everything."""
        del scope, name, need
        return self

    async def may_create(self, name: Name) -> bool:
        """Let any push make its repository."""
        del name
        return True

    async def sources(self, target: Name, source: Name | None) -> Callable[[Name], bool]:
        """Grant mounts from every repository of the account."""
        del target, source
        return self._is_own

    async def listing(self) -> Listing:
        """Grant the whole catalog."""
        return Listing(self._account, self._may_describe)

    async def _may_describe(self, name: Name) -> bool:
        return self._is_own(name)

    def _is_own(self, name: Name) -> bool:
        return name.handle == self._account
