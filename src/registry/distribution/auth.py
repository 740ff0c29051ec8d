"""Authorization of the data plane: the protocols, and the open access of ``entrepot dev``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from cloudcore.serving.body import Scope
from registry.oci.reference import Name
from registry.services.access import Rights


class Need(NamedTuple):
    """The right that a request needs, and the actions that its challenge names."""

    action: str
    """The one action that must be granted."""
    scope_actions: str
    """The actions of the challenge, in the grammar of scopes."""
    may_mount: bool = False
    """The query may name a source repository to mount from, which needs a pull."""


PULL = Need("pull", "pull")
PUSH = Need("push", "pull,push")
MOUNT = Need("push", "pull,push", may_mount=True)
PROBE = Need("pull", "pull,push")
"""HEAD of a blob: the Python oras client opens a push with it and keeps its first token."""
DELETE = Need("delete", "delete")
CATALOG = Need("*", "*")


class Listing(NamedTuple):
    """The part of the catalog that a caller may see."""

    account: str
    """The handle of the caller's own account."""
    may_describe: Callable[[Name], Awaitable[bool]]


class Grant(Rights, Protocol):
    """The rights of one authorized request."""

    @property
    def counts_pulls(self) -> bool:
        """Return True if pulls by this caller are recorded."""
        ...

    @property
    def expires_at(self) -> int | None:
        """Return when the credential ends; None if there is none."""
        ...

    async def listing(self) -> Listing:
        """Return the caller's account, and which of its repositories the catalog lists."""
        ...


class Access(Protocol):
    """Authorizes each request by its credential, before its body is read."""

    def authorize(self, scope: Scope, name: Name | None, need: Need | None) -> Grant:
        """Return the rights of the request; without a `need`, any valid credential is enough.

        Raises:
            TokenRequired, TokenDenied.

        """
        ...


class OpenAccess:
    """Lets every client act for one account: for ``entrepot dev``, which serves loopback only."""

    principal = ""
    source = None
    client = None
    counts_pulls = True
    expires_at = None

    def __init__(self, account: str) -> None:
        self._account = account

    def authorize(self, scope: Scope, name: Name | None, need: Need | None) -> Grant:
        """Grant everything."""
        del scope, name, need
        return self

    async def may_create(self, name: Name) -> bool:
        """Let every push create its repository."""
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
