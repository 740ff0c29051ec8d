"""Authorization of the data plane: the protocols, the open access of ``entrepot dev``, challenges.

A challenge (``WWW-Authenticate``) names the token endpoint and the scope to request (RFC 6750,
distribution). It is one header with every value quoted and no space after a comma, since clients
parse it with regular expressions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from cloudcore.serving.asgi import Scope
from registry.distribution.routing import realm_query, requested_host
from registry.oci.reference import Name
from registry.services.access.decisions import Rights


class Need(NamedTuple):
    """The right that a request needs, and the actions to name in its challenge."""

    action: str
    """The one action that must be granted."""
    scope_actions: str
    """The actions of the challenge, in the grammar of scopes."""
    may_mount: bool = False
    """True if the query may name a repository to mount from, where the client needs the pull
    right."""


PULL = Need("pull", "pull")
PUSH = Need("push", "pull,push")
MOUNT = Need("push", "pull,push", may_mount=True)
PROBE = Need("pull", "pull,push")
"""HEAD of a blob. Its challenge names push too, since the Python oras client begins a push with
this request and keeps the first token."""
DELETE = Need("delete", "delete")
CATALOG = Need("*", "*")


class VisibleCatalog(NamedTuple):
    """The part of the catalog that a caller may see."""

    account: str
    """The handle of the caller's own account."""
    may_describe: Callable[[Name], Awaitable[bool]]
    """Returns True if the caller may see a repository of that account."""


class Grant(Rights, Protocol):
    """The rights of one authorized request."""

    @property
    def counts_pulls(self) -> bool:
        """Return True if pulls by this caller are recorded."""

    @property
    def expires_at(self) -> int | None:
        """Return when the credential expires, in microseconds; None if there is no credential."""

    async def listing(self) -> VisibleCatalog:
        """Return the caller's account, and a filter for the repositories that the catalog lists."""


class Access(Protocol):
    """Authorizes each request by its credential, before its body is read."""

    def authorize(self, scope: Scope, name: Name | None, need: Need | None) -> Grant:
        """Return the rights of the request; without a `need`, any valid credential is enough.

        Raise TokenRequired or TokenDenied.
        """


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
        """Grant everything, without checking a credential."""
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

    async def listing(self) -> VisibleCatalog:
        """Grant the whole catalog."""
        return VisibleCatalog(self._account, self._may_describe)

    async def _may_describe(self, name: Name) -> bool:
        return self._is_own(name)

    def _is_own(self, name: Name) -> bool:
        return name.handle == self._account


class Challenges:
    """Writes challenges with the registry's address as the client knows it."""

    def __init__(self, public_url: str = "", hosts: Sequence[str] = ()) -> None:
        """Write `public_url` into every challenge; if that is empty, use one of `hosts`.

        A request whose ``Host`` is one of `hosts` gets this host. Any other gets the first host or,
        if there are no `hosts`, the socket's address: an unknown ``Host`` is not echoed, since a
        cache might serve the response to other clients.
        """
        self._public = public_url.rstrip("/")
        self._hosts = tuple(host.lower() for host in hosts)

    def bearer(self, scope: Scope, token_scope: str = "", error: str = "") -> str:
        """Return the challenge to request a bearer token with the scope `token_scope`.

        `error` is the error code to include (RFC 6750 §3.1), if not empty.
        """
        base, host = self._address(scope)
        query = realm_query(scope.get("state", {}).get("mirror"))
        challenge = f'Bearer realm="{base}/v2/token{query}",service="{host}"'
        if token_scope:
            challenge += f',scope="{token_scope}"'
        if error:
            challenge += f',error="{error}"'
        return challenge

    def basic(self, scope: Scope) -> str:
        """Return the challenge of the token endpoint itself, for Basic credentials."""
        return f'Basic realm="{self._address(scope)[1]}"'

    def _address(self, scope: Scope) -> tuple[str, str]:
        """Return the base URL and the host of the registry to show to this client."""
        if self._public:
            return self._public, urlsplit(self._public).netloc
        host = requested_host(scope)
        if host not in self._hosts:
            host = self._hosts[0] if self._hosts else _own_address(scope)
        return f"{scope.get('scheme', 'http')}://{host}", host


def _own_address(scope: Scope) -> str:
    """Return the address and port of the socket that accepted the request."""
    address, port = scope.get("server") or ("localhost", None)
    bracketed = f"[{address}]" if ":" in address else address
    return bracketed if port is None else f"{bracketed}:{port}"
