"""The metadata service of one instance: it takes bytes and returns bytes, without sockets.

A program in an instance gets a token by ``PUT``, and sends it with each ``GET``. So neither a web
page, nor a proxy that can be tricked into a request, gets an answer (as with the second version of
AWS's service). For the same reason, these are refused: a forwarded request; a request whose
``Host`` is a name, since an attacker can point a name here; and any request without the header of
the token, as redirects and forms cannot set headers.

The answers come from two files of the instance's folder, each a JSON object that is read at each
request, so that a file can be replaced by a rename at any time: ``instance.json``, and
``credentials.json`` if the instance has a role.

It speaks HTTP/1.1 (RFC 9112) without request bodies, and with bounds on all input. The owner of the
sockets feeds a `MetadataConversation` for each connection, and closes the connection at its
`deadline`. This file imports the standard library alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

ADDRESS: Final = "169.254.169.254"
"""The address of the service (RFC 3927), on the loopback of the instance."""
PORT: Final = 80

INSTANCE_FILE: Final = "instance.json"
CREDENTIALS_FILE: Final = "credentials.json"

TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105 - a path
INSTANCE_PATH: Final = "/latest/entrepot/instance"
ACCESS_TOKEN_PATH: Final = "/latest/entrepot/iam/access-token"  # noqa: S105 - a path
CREDENTIALS_PATH: Final = "/latest/entrepot/iam/credentials"

MAX_CONNECTIONS: Final = 32
"""The most open connections; further connections wait."""
REQUEST_SECONDS: Final = 10.0
"""Seconds that a connection may take to send its next request."""
MAX_HEAD_BYTES: Final = 8 * 1024
MAX_REQUESTS: Final = 100
"""The most requests of one connection."""
MAX_TOKEN_SECONDS: Final = 6 * 3600

_MAX_FILE_BYTES: Final = 64 * 1024
_TTL: Final = "x-entrepot-metadata-token-ttl-seconds"
_TOKEN: Final = "x-entrepot-metadata-token"  # noqa: S105 - a name
_PROXIED: Final = frozenset({"x-forwarded-for", "forwarded", "via"})
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,1023}) HTTP/1\.([01])")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_HOST: Final = re.compile(re.escape(ADDRESS) + r"(?::[0-9]{1,5})?")
_SECRETS: Final = ("access_key_id", "secret_access_key", "session_token")
_ROLE: Final = ("expires_at", "account_id", "account_handle", "role_id")
_NONCE_BYTES: Final = 8
_END_BYTES: Final = 8


class Request(NamedTuple):
    """A request whose head is well-formed."""

    method: str
    path: str
    fields: Mapping[str, str]
    """Header fields by name in lower case; each name occurs once."""


class Response(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: str
    media_type: str = "text/plain; charset=utf-8"
    fields: Mapping[str, str] = {}


class _Refused(Exception):
    """Raised to refuse a request; `response` is the answer."""

    def __init__(
        self, status: HTTPStatus, words: str, field: tuple[str, str] | None = None
    ) -> None:
        super().__init__(words)
        self.response = Response(status, words + "\n", fields=dict([field] if field else []))


class MetadataService:
    """Answers metadata requests of one instance."""

    def __init__(
        self,
        folder: Path,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve the files of the instance's `folder`."""
        self._folder = folder
        self._now = now
        self.monotonic = monotonic
        # Tokens are not stored: each has its expiry and a signature, by a key of this process.
        self._key = secrets.token_bytes(32)

    def answer(self, request: Request) -> Response:
        """Return the answer to a request; a refusal is an answer, too."""
        try:
            return self._answer(request)
        except _Refused as refused:
            return refused.response

    def _answer(self, request: Request) -> Response:
        if not _PROXIED.isdisjoint(request.fields):
            raise _Refused(HTTPStatus.FORBIDDEN, "requests through a proxy are refused")
        if not _HOST.fullmatch(request.fields.get("host", "")):
            raise _Refused(HTTPStatus.FORBIDDEN, f"the host of this service is {ADDRESS}")
        method = "PUT" if request.path == TOKEN_PATH else "GET"
        if request.method != method:
            words = f"only {method} is answered here"
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, words, ("Allow", method))
        if request.path == TOKEN_PATH:
            return self._new_token(request.fields.get(_TTL, ""))
        if not self._is_valid(request.fields.get(_TOKEN, "")):
            words = f"send a token in {_TOKEN.title()}; PUT {TOKEN_PATH} gives one"
            field = "WWW-Authenticate", _TOKEN.title()
            raise _Refused(HTTPStatus.UNAUTHORIZED, words, field)
        return self._told(request.path)

    def _told(self, path: str) -> Response:
        if path == INSTANCE_PATH:
            return _json(self._read(INSTANCE_FILE))
        if path == CREDENTIALS_PATH:
            role = self._role()
            return _json({name: role[name] for name in (*_SECRETS, *_ROLE)})
        if path == ACCESS_TOKEN_PATH:
            role = self._role()
            ends = {"X-Entrepot-Expires-At": role["expires_at"]}
            return Response(HTTPStatus.OK, role["access_token"], fields=ends)
        paths = f"{INSTANCE_PATH}, {ACCESS_TOKEN_PATH} and {CREDENTIALS_PATH}"
        raise _Refused(HTTPStatus.NOT_FOUND, f"there is nothing here; there are {paths}")

    def _new_token(self, ttl: str) -> Response:
        seconds = int(ttl) if re.fullmatch("[0-9]{1,5}", ttl) else 0
        if not 1 <= seconds <= MAX_TOKEN_SECONDS:
            words = f"{_TTL.title()} is 1 to {MAX_TOKEN_SECONDS} seconds"
            raise _Refused(HTTPStatus.BAD_REQUEST, words)
        ends = int((self.monotonic() + seconds) * 1000)
        signed = ends.to_bytes(_END_BYTES, "big") + secrets.token_bytes(_NONCE_BYTES)
        token = base64.urlsafe_b64encode(signed + self._signature(signed)).decode()
        return Response(HTTPStatus.OK, token, fields={_TTL.title(): str(seconds)})

    def _is_valid(self, token: str) -> bool:
        try:
            raw = base64.b64decode(token.encode("latin-1"), b"-_", validate=True)
        except binascii.Error:
            return False
        signed, signature = raw[: _END_BYTES + _NONCE_BYTES], raw[_END_BYTES + _NONCE_BYTES :]
        if not hmac.compare_digest(signature, self._signature(signed)):
            return False
        return self.monotonic() * 1000 < int.from_bytes(signed[:_END_BYTES], "big")

    def _signature(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, signed, hashlib.sha256)

    def _role(self) -> dict[str, Any]:
        """Return the credentials of the instance's role; raise `_Refused` if none are valid now."""
        role = self._read(CREDENTIALS_FILE)
        try:
            texts = [role[name] for name in ("access_token", *_SECRETS, *_ROLE)]
            are_good = all(isinstance(text, str) and text.isprintable() for text in texts)
            is_over = datetime.fromisoformat(role["expires_at"]).timestamp() <= self._now()
        except (KeyError, TypeError, ValueError):
            are_good, is_over = False, True
        if not are_good or is_over:
            words = "the credentials of the role are being renewed"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, words, ("Retry-After", "5"))
        return role

    def _read(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file of the instance's folder, or raise `_Refused`."""
        try:
            with (self._folder / name).open("rb") as file:
                found = json.loads(file.read(_MAX_FILE_BYTES))
        except FileNotFoundError:
            if name == CREDENTIALS_FILE:
                words = "this instance has no role: its pool names one in 'role'"
                raise _Refused(HTTPStatus.NOT_FOUND, words) from None
            found = None
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict):
            words = "this is not known yet; try again"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, words, ("Retry-After", "1"))
        return found


class MetadataConversation:
    """One connection: takes received bytes, returns bytes to send."""

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self._received = b""
        self._requests = 0
        self.is_over = False
        """True if the connection is to be closed after the last answer is sent."""
        self.deadline = service.monotonic() + REQUEST_SECONDS
        """When to close the connection, by the clock of the service; each complete request moves
        it."""

    def receive(self, data: bytes) -> bytes:
        """Take received bytes; return the responses to the requests that are now complete."""
        self._received += data
        answers = []
        while not self.is_over:
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if len(head) > MAX_HEAD_BYTES:
                answers.append(self._last(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            if not end or self.is_over:
                break
            self._received = rest
            self.deadline = self._service.monotonic() + REQUEST_SECONDS
            answers.append(self._answer(head))
        if self.is_over:
            self._received = b""
        return b"".join(answers)

    def _answer(self, head: bytes) -> bytes:
        try:
            request = _parsed(head)
        except _Refused as refused:
            return self._last(refused.response.status, refused.response)
        self._requests += 1
        asked = request.fields.get("connection", "").lower().replace(" ", "").split(",")
        self.is_over = "close" in asked or self._requests == MAX_REQUESTS
        return _encoded(self._service.answer(request), closes=self.is_over)

    def _last(self, status: HTTPStatus, response: Response | None = None) -> bytes:
        """Return the last response and end the connection: the next request's start is unknown."""
        self.is_over = True
        return _encoded(response or Response(status, status.description + "\n"), closes=True)


def _parsed(head: bytes) -> Request:
    """Parse the head of a request; raise `_Refused` if it is malformed."""
    line, *lines = head.split(b"\r\n")
    asked = _REQUEST_LINE.fullmatch(line)
    if asked is None:
        raise _Refused(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
    if asked[3] != b"1":
        raise _Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "ask by HTTP/1.1")
    fields: dict[str, str] = {}
    for each in lines:
        field = _FIELD.fullmatch(each)
        if field is None:
            raise _Refused(HTTPStatus.BAD_REQUEST, "a header field is malformed")
        name = field[1].decode().lower()
        if name in fields:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"there is more than one field {name}")
        fields[name] = field[2].strip(b" \t").decode("latin-1")
    if "host" not in fields:
        raise _Refused(HTTPStatus.BAD_REQUEST, "there is no field host")
    if "transfer-encoding" in fields or fields.get("content-length", "0") != "0":
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "requests here have no body")
    return Request(asked[1].decode(), asked[2].decode(), fields)


def _encoded(response: Response, *, closes: bool) -> bytes:
    body = response.body.encode()
    fields = {
        "Date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "Content-Type": response.media_type,
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "close" if closes else "keep-alive",
        **response.fields,
    }
    status = response.status
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *map(": ".join, fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def _json(value: Mapping[str, Any]) -> Response:
    return Response(HTTPStatus.OK, json.dumps(value, indent=2) + "\n", "application/json")
