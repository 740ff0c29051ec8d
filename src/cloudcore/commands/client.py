"""What commands need from the product they belong to: its API client and its sign-in."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, Protocol

import msgspec

Query = Mapping[str, str | int | bool | None]


class TokenClaims(msgspec.Struct):
    """The claims of an access token that commands display."""

    sub: str
    """The principal's CRN."""
    exp: int
    """Seconds since the epoch."""
    acc: str | None = None
    """The account's id; None for a person without a role."""
    sid: str | None = None
    """The session, for people and roles."""
    akid: str | None = None
    """The access key, for service accounts."""


class ApiCalls(Protocol):
    """The client of the control plane, signed in."""

    @property
    def account_id(self) -> str | None:
        """Return the id of the account to act in, or None for a person without a role."""

    def call(
        self,
        method: str,
        path: str,
        document: object = None,
        query: Query | None = None,
    ) -> dict[str, Any]:
        """Send a request with `document` as JSON; return the response's JSON."""

    def create(
        self,
        path: str,
        document: object = None,
        query: Query | None = None,
    ) -> dict[str, Any]:
        """Send a POST that takes effect once (``Idempotency-Key``); return the response's JSON."""

    def send_file(self, path: str, file: BinaryIO, size: int, content_type: str) -> dict[str, Any]:
        """PUT the `size` bytes of a seekable file, perhaps twice; return the response's JSON."""

    def receive_file(self, path: str, file: BinaryIO) -> int:
        """Write the response body of `path` to a file; return the number of bytes."""

    def rows(
        self,
        path: str,
        field: str,
        query: Query | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of all pages of a list; `field` names the array in each page."""


class SignedIn(Protocol):
    """The sign-in to the server that a command calls."""

    @property
    def url(self) -> str:
        """Return the server's base URL."""

    @property
    def is_program(self) -> bool:
        """Return True if a service account signed in."""

    @property
    def role(self) -> str | None:
        """Return the role the person acts in, as typed at the sign-in, or None without a role."""

    def client(self, *, in_role: bool) -> ApiCalls:
        """Return a client that acts in the role or, if not `in_role`, as the one who signed in."""

    def claims(self) -> TokenClaims:
        """Return the claims of the access token that commands use."""

    def assume(self, role: str | None) -> None:
        """Make later commands act in `role`; if None, as the person without a role."""


class Product(NamedTuple):
    """The product's functions that commands call; parsed options have them as ``product``."""

    sign_in: Callable[[argparse.Namespace], SignedIn]
    """Returns the sign-in to the server that the options name; by default, the only sign-in."""
    send_public: Callable[[argparse.Namespace, str, str, object], dict[str, Any]]
    """Sends a request without a sign-in (options, method, path, document); returns the JSON."""
    crn_of: Callable[[ApiCalls, str], str]
    """Returns the CRN of a resource whose name is written without its kind."""
    log_in: Callable[[str, str, str, str, str], None]
    """Logs in a container client on this machine. Arguments: the server's URL, the client program,
    a user name, a password, and the host to log in to."""
