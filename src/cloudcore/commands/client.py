"""What commands need of the product that they belong to: its API client and its sign-in."""

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
    """The session, of people and roles."""
    akid: str | None = None
    """The access key, of service accounts."""


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
        """Send `document` as JSON; return the answer."""

    def create(
        self,
        path: str,
        document: object = None,
        query: Query | None = None,
    ) -> dict[str, Any]:
        """Send a POST that takes effect once (``Idempotency-Key``); return the answer."""

    def send_file(self, path: str, file: BinaryIO, size: int, content_type: str) -> dict[str, Any]:
        """PUT the `size` bytes of a file, which a retry reads again; return the answer."""

    def receive_file(self, path: str, file: BinaryIO) -> int:
        """Write the response body of `path` to a file; return the number of bytes."""

    def rows(
        self,
        path: str,
        field: str,
        query: Query | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of all pages of a list."""


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
        """Return the role in which the person acts, as it was typed at the sign-in."""

    def client(self, *, in_role: bool) -> ApiCalls:
        """Return a client that acts in the role or, if not `in_role`, as who signed in."""

    def claims(self) -> TokenClaims:
        """Return the claims of the token that commands use."""

    def assume(self, role: str | None) -> None:
        """Let commands act in a role from now on, or as the person."""


class Product(NamedTuple):
    """What commands use of the product; it is the default ``product`` of the options."""

    sign_in: Callable[[argparse.Namespace], SignedIn]
    """Returns the sign-in to the server that the options name, or the only one."""
    send_public: Callable[[argparse.Namespace, str, str, object], dict[str, Any]]
    """Sends a request, with a method, a path and a document, that needs no sign-in."""
    crn_of: Callable[[ApiCalls, str], str]
    """Returns the CRN of what a name without a kind names."""
    log_in: Callable[[str, str, str, str, str], None]
    """Logs a container client of this machine in: a URL, the program, a user name, a password, and
    the host to log in to."""
