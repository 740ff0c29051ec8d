"""The client of the control plane for commands: signed in, with JSON bodies and paged lists."""

from __future__ import annotations

import argparse
import http.client
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from shutil import copyfileobj
from typing import Any, BinaryIO, Final, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import msgspec

from cloudcore.command_failures import NotSignedIn, RequestRefused
from cloudcore.commands.client import TokenClaims
from cloudcore.commands.invocation import Invocation
from registry.cli.client.credentials import Credential, changing, credentials_path, load
from registry.cli.client.sign_in import (
    KeyTokens,
    SignIn,
    assume_role,
    bearer,
    choose_registry,
    claims_of,
    find_key,
    transport_to,
)
from registry.cli.client.transport import (
    PULL,
    ConnectionLost,
    HttpRequest,
    Transport,
    base_url,
)

PAGE_ROWS: Final = 200
"""The largest page that ``/v1`` returns."""
_COPIED_BYTES: Final = 1 << 20

T = TypeVar("T")
Record = dict[str, Any]
Query = Mapping[str, str | int | bool | None]


_Send = Callable[[HttpRequest], T]


class ApiTokens(Protocol):
    """A source of access tokens."""

    def token(self) -> str:
        """Return an unexpired token."""

    def renewed_token(self, refused: str | None) -> str:
        """Return a token other than `refused`, which the registry rejected."""

    def advice(self) -> str:
        """Return advice to show after a 403, or an empty string."""


class ApiClient:
    """Calls ``/v1`` of one registry with tokens of the signed-in user.

    Every call raises `RequestRefused` if the response is an error, `NotSignedIn` if the sign-in has
    ended, and another `CommandFailure` if there is no response.
    """

    def __init__(self, transport: Transport, tokens: ApiTokens) -> None:
        self._transport = transport
        self._tokens = tokens

    @property
    def url(self) -> str:
        """Return the registry's base URL."""
        return self._transport.url

    @property
    def host(self) -> str:
        """Return the registry's host and port, as image references contain them."""
        return urlsplit(self._transport.own_urls.get(PULL, self.url)).netloc

    @property
    def own_urls(self) -> Mapping[str, str]:
        """Map each family that has its own base URL to that URL."""
        return self._transport.own_urls

    @property
    def account_id(self) -> str | None:
        """Return the id of the account that commands act in; None for a person without a role."""
        return claims_of(self._tokens.token()).acc

    def call(
        self, method: str, path: str, document: object = None, query: Query | None = None
    ) -> Record:
        """Send `document` as JSON, and the `query` without its Nones; return the JSON response."""
        return self._signed(self._transport.send, _request(method, path, document, query))

    def put_if(self, condition: Mapping[str, str], path: str, document: object) -> Record:
        """Send a PUT with conditional headers, such as ``If-Match``; return the JSON response."""
        request = _request("PUT", path, document, None)
        headers = {**condition, **request.headers}
        return self._signed(self._transport.send, request._replace(headers=headers))

    def create(self, path: str, document: object = None, query: Query | None = None) -> Record:
        """Send a POST that takes effect once (``Idempotency-Key``); return the JSON response."""
        request = _request("POST", path, document, query)
        headers = {"Idempotency-Key": str(uuid4()), **request.headers}
        return self._signed(self._transport.send, request._replace(headers=headers))

    def fetch(self, path: str) -> bytes:
        """Return the bytes of the response at `path`."""
        return self._signed(self._transport.fetch, HttpRequest("GET", path))

    def send_file(self, path: str, file: BinaryIO, size: int, content_type: str) -> Record:
        """PUT the `size` bytes of a seekable file, twice if necessary; return the JSON response."""
        headers = {"Content-Type": content_type, "Content-Length": str(size)}

        def send(request: HttpRequest) -> Record:
            file.seek(0)
            return self._transport.send(request)

        return self._signed(send, HttpRequest("PUT", path, headers, file))

    def receive_file(self, path: str, file: BinaryIO) -> int:
        """Write the bytes of the response at `path` to a file; return their number.

        If the response breaks off, it is requested again from the beginning, into the same file.
        """

        def copy(response: http.client.HTTPResponse) -> int:
            file.seek(0)
            file.truncate()
            copyfileobj(response, file, _COPIED_BYTES)
            return file.tell()

        wanted = HttpRequest("GET", path, {"Accept": "*/*"})
        return self._signed(lambda request: self._transport.read(request, copy), wanted)

    def _signed(self, send: _Send[T], request: HttpRequest) -> T:
        """Send a request with a token; after a 401, retry once with a renewed token."""
        token = self._tokens.token()
        try:
            return self._sent(send, request, token)
        except RequestRefused as error:
            if error.status == 403 and (advice := self._tokens.advice()):
                raise RequestRefused(f"{error}; {advice}", error.status, error.code) from None
            if error.status != 401:
                raise
        # A 401 has no effect, so the same request may be sent again.
        return self._sent(send, request, self._tokens.renewed_token(token))

    def _sent(self, send: _Send[T], request: HttpRequest, token: str) -> T:
        """Send a request; if the response is lost and repeating is safe, send it once more."""
        signed = request._replace(headers={**request.headers, **bearer(token)})
        try:
            return send(signed)
        except ConnectionLost:
            if not _is_repeatable(request):
                raise
        return send(signed)

    def rows(self, path: str, field: str, query: Query | None = None) -> Iterator[Record]:
        """Yield the rows of all pages of a list; `field` names the array in each page."""
        for page in self.pages("GET", path, query=query):
            yield from page[field]

    def pages(
        self, method: str, path: str, document: object = None, query: Query | None = None
    ) -> Iterator[Record]:
        """Yield all pages of a list as JSON objects."""
        wanted: dict[str, str | int | bool | None] = {"limit": PAGE_ROWS, **(query or {})}
        while True:
            page = self.call(method, path, document, wanted)
            yield page
            wanted["marker"] = page["meta"].get("marker")
            if wanted["marker"] is None:
                return


def client_of(run: Invocation) -> ApiClient:
    """Return the client of an invocation that calls a registry."""
    assert isinstance(run.client, ApiClient)
    return run.client


def send_public(
    options: argparse.Namespace, method: str, path: str, document: object = None
) -> dict[str, Any]:
    """Send a request that needs no sign-in; return the JSON response.

    A GET is sent with a token if there is a sign-in.
    """
    stored = credentials_path(os.environ)
    transport = transport_to(choose_registry(options.registry, os.environ, stored), stored)
    request = _request(method, path, document, None)
    if method == "GET":
        with suppress(NotSignedIn):
            token = SignIn(transport, stored).token()
            request = request._replace(headers={**request.headers, **bearer(token)})
    return transport.send(request)


def client_for(url: str, environ: Mapping[str, str]) -> ApiClient:
    """Return a client with the environment's access key if it is for `url`, else the sign-in."""
    path = credentials_path(environ)
    transport = transport_to(url, path)
    key = find_key(environ, transport.url)
    return ApiClient(transport, KeyTokens(transport, key) if key else SignIn(transport, path))


def _is_repeatable(request: HttpRequest) -> bool:
    """Return True if a request may be sent again after it may have taken effect.

    A conditional PUT may not: after it took effect, its condition no longer holds, so that the
    repeated request would fail.
    """
    if request.method == "PUT":
        return request.headers.keys().isdisjoint({"If-Match", "If-None-Match"})
    return request.method == "GET" or "Idempotency-Key" in request.headers


def _request(method: str, path: str, document: object, query: Query | None) -> HttpRequest:
    body = None if document is None else msgspec.json.encode(document)
    headers = {} if body is None else {"Content-Type": "application/json"}
    return HttpRequest(method, path + _query_string(query or {}), headers, body)


def _query_string(query: Query) -> str:
    """Return the query string with its question mark, or "" if there is none.

    Booleans are ``true`` and ``false``; Nones are left out.
    """
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }
    return f"?{urlencode(given)}" if given else ""


class StoredSignIn:
    """The stored sign-in to the registry that the command line chooses.

    If the environment has an access key for that registry, the key is used instead.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._path = credentials_path(os.environ)
        named: str | None = options.registry
        key = find_key(os.environ, None if named is None else base_url(named))
        url = key.url if key else choose_registry(named, os.environ, self._path)
        self._transport = transport_to(url, self._path)
        self._key_tokens = KeyTokens(self._transport, key) if key else None

    @property
    def url(self) -> str:
        """Return the registry's base URL."""
        return self._transport.url

    @property
    def credential(self) -> Credential | None:
        """Return the stored credential of this registry, or None."""
        return load(self._path).get(self.url)

    @property
    def is_program(self) -> bool:
        """Return True if a service account signed in, which has no refresh token."""
        if self._key_tokens is not None:
            return True
        credential = self.credential
        return credential is not None and credential.refresh_token is None

    def tokens(self, *, in_role: bool) -> ApiTokens:
        """Return the tokens of the assumed role; without `in_role`, of the person or program."""
        if self._key_tokens is not None:
            return self._key_tokens
        return SignIn(self._transport, self._path, in_role=in_role)

    def client(self, *, in_role: bool) -> ApiClient:
        """Return a client that acts in the assumed role; without `in_role`, as the person."""
        return ApiClient(self._transport, self.tokens(in_role=in_role))

    @property
    def role(self) -> str | None:
        """Return the role in which the person acts, as it was written at the sign-in, or None."""
        credential = None if self._key_tokens else self.credential
        return None if credential is None else credential.role

    def claims(self) -> TokenClaims:
        """Return the claims of the token that commands use; renew the token if necessary."""
        return claims_of(self.tokens(in_role=True).token())

    def assume(self, role: str | None) -> None:
        """Make later commands act in `role`; for None, as the person who signed in.

        Raise `NotSignedIn` if nobody is signed in.
        """
        source = self.tokens(in_role=False).token()  # raises if nobody is signed in
        token = None if role is None else assume_role(self._transport, source, role)
        with changing(self._path) as credentials:
            stored = credentials[self.url]
            credentials[self.url] = msgspec.structs.replace(stored, role=role, role_token=token)
