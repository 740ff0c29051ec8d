"""Send one HTTP request to the base URL that serves its path, and read the response.

``GET /v1/regions`` of a registry lists the base URL of each family. The message of a failure is one
line.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from cloudcore.command_failures import CommandFailure, Misuse, RequestRefused
from cloudcore.commands.records import printable
from registry.composition.families import FAMILIES

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 30


class ConnectionLost(CommandFailure):
    """The connection broke after the request was sent; the request may have taken effect."""


class HttpRequest(NamedTuple):
    """A request to the registry."""

    method: str
    target: str
    """Path and query."""
    headers: Mapping[str, str] = {}
    body: bytes | BinaryIO | None = None

    def __repr__(self) -> str:
        """Return method and path only: tracebacks must not show tokens or bodies."""
        return f"HttpRequest({self.method!r}, {self.target.partition('?')[0]!r})"


class _Answer(dict[str, Any]):
    """A JSON object from a registry; reading a missing field raises `CommandFailure`."""

    def __init__(self, url: str, document: dict[str, Any]) -> None:
        super().__init__(document)
        self._url = url

    def __missing__(self, name: str) -> None:
        raise CommandFailure(
            f"the answer of {self._url} has no {name!r}: it is no registry, "
            "or its version is another than 'entrepot --version' tells"
        )


class Transport:
    """Sends requests to one registry, whose families may have their own base URLs.

    Redirects are not followed, so credentials go to these URLs only.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        own_urls: Mapping[str, str] | None = None,
    ) -> None:
        """Send to a family's URL in `own_urls`, else to `url`; a first 404 refreshes `own_urls`."""
        self.url = base_url(url)
        self.own_urls: Mapping[str, str] = own_urls or {}
        self._has_asked = False
        self._timeout = timeout_seconds
        self._opener = urllib.request.build_opener(_NoRedirects)

    def url_for(self, path: str) -> str:
        """Return the base URL that serves a path."""
        return url_for(path, self.url, self.own_urls)

    def find_own_urls(self) -> None:
        """Read `own_urls` from the registry's regions; later calls do nothing."""
        if self._has_asked:
            return
        self._has_asked = True
        with suppress(RequestRefused):
            found = self.send(HttpRequest("GET", REGIONS_PATH))
            self.own_urls = parse_own_urls(found, self.url)

    def send(self, request: HttpRequest) -> dict[str, Any]:
        """Send a request; return the JSON object of the response, or ``{}`` for an empty body.

        Raise what `read` raises, and `CommandFailure` if the response is not a JSON object.
        """
        text = self.fetch(request)
        try:
            document = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CommandFailure(
                f"what answers at {self.url} is no registry; check the URL"
            ) from None
        return _Answer(self.url, document)

    def fetch(self, request: HttpRequest) -> bytes:
        """Send a request; return the bytes of the response. Raise what `read` raises."""
        return self.read(request, http.client.HTTPResponse.read)

    def read(self, request: HttpRequest, reading: Callable[[http.client.HTTPResponse], T]) -> T:
        """Send a request; return the result of `reading` the response.

        After a 404, the request is sent again if the registry serves the path at another base URL.

        Raises:
            RequestRefused: the response is an error.
            ConnectionLost: the connection broke; the request may have taken effect.
            CommandFailure: the registry cannot be reached, or does not answer in time; then the
                request may have taken effect too.

        """
        base = self.url_for(request.target)
        try:
            return self._read(base, request, reading)
        except RequestRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self.find_own_urls()
            if self.url_for(request.target) == base:
                raise
        if request.body is not None and not isinstance(request.body, bytes):
            request.body.seek(0)
        return self._read(self.url_for(request.target), request, reading)

    def _read(
        self, base: str, request: HttpRequest, reading: Callable[[http.client.HTTPResponse], T]
    ) -> T:
        method, target, headers, body = request
        advice = "try again later" if method == "GET" else "check whether it was done nevertheless"
        headers = {"Accept": "application/json", **headers}
        made = urllib.request.Request(base + target, body, headers, method=method)  # noqa: S310 - `base_url` has checked the scheme
        try:
            with self._opener.open(made, timeout=self._timeout) as response:
                return reading(response)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(base, error) from None
        except ConnectionError:
            raise ConnectionLost(f"{base} hung up before it had answered; {advice}") from None
        except TimeoutError:  # after the request was sent; before that, it is within a `URLError`
            raise CommandFailure(f"no answer of {base} in time; {advice}") from None
        except http.client.IncompleteRead as error:
            raise ConnectionLost(_trouble(base, error)) from None
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailure(_trouble(base, error)) from None


def base_url(url: str) -> str:
    """Normalize a registry's URL to the form under which credentials are stored.

    Raise `Misuse` if it is not the HTTP URL of a host.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    is_plain = url.isascii() and url.isprintable()
    if not is_plain or parts.scheme not in ("http", "https") or not host:
        raise Misuse(f"a registry's URL is like https://registry.example.com, not {url!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise Misuse(f"a registry's URL is scheme and host, nothing more: {parts.scheme}://{host}")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _code_and_message(document: dict[str, Any]) -> tuple[str, str]:
    """Return the code and message in an error's body.

    The body has the form of ``/v1``, of OAuth (RFC 6749 §5.2) or of ``/v2`` (distribution-spec).
    """
    match document:
        case {"errors": [{"code": str(code), "message": str(message)}, *_]}:
            return code, printable(f"{code}: {message}")
        case {"error": dict(error)}:
            code, message = str(error.get("code", "")), str(error.get("message", ""))
            params = error.get("params")
            field = params.get("field") if isinstance(params, dict) else None
            needs_field = isinstance(field, str) and not message.startswith(field)
            where = f"{field}: " if needs_field else ""
            request = f" (request {error['request_id']})" if "request_id" in error else ""
            return code, printable(f"{code}: {where}{message}{request}")
        case {"error": str(error)}:
            described = document.get("error_description")
            return error, printable(f"{error}: {described}" if described else error)
    return "", ""


def _refusal(url: str, error: urllib.error.HTTPError) -> RequestRefused:
    status, target = error.code, error.headers.get("Location")
    if 300 <= status < 400 and target:
        return RequestRefused(f"{url} redirects to {printable(target)}; use that URL", status)
    try:
        document = msgspec.json.decode(error.read(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, http.client.HTTPException):
        return RequestRefused(
            f"{url} answered {status} without saying why; "
            "is it the URL of the registry, and is there a proxy before it?",
            status,
        )
    code, message = _code_and_message(document)
    if status == HTTPStatus.TOO_MANY_REQUESTS and (seconds := error.headers.get("Retry-After")):
        message += f"; try again in {printable(seconds)} seconds, not before"
    return RequestRefused(message or f"the registry answered {status}", status, code)


def _trouble(url: str, error: Exception) -> str:
    """Return why there was no complete response, with advice."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    match reason:
        case ssl.SSLCertVerificationError():
            advice = "name the file of its authority in SSL_CERT_FILE"
            return f"the certificate of {url} is not trusted: {reason.verify_message}; {advice}"
        case ssl.SSLError():
            return f"{url} does not speak TLS as it should; is it an http:// URL?"
        case http.client.HTTPException() if not isinstance(reason, OSError):
            return f"{url} does not speak HTTP; is it an https:// URL?"
        case TimeoutError():
            words = "no answer in time"
        case OSError(strerror=str(words)):
            pass
        case _:
            words = str(reason)
    return f"cannot reach {url}: {printable(words)}; check the URL, or try again later"


REGIONS_PATH: Final = "/v1/regions"
PULL: Final = "pull"
_MAIN: Final = "api"
_PARTS: Final[Mapping[str, str]] = {
    "/v2": PULL,
    **{path: each.host for each in FAMILIES if each.host for path in each.paths},
}
"""Maps the first one or two segments of a path to the part of a registry that serves it."""


def url_for(path: str, url: str, own_urls: Mapping[str, str]) -> str:
    """Return the base URL that serves a path, which may have a query; `url` is the default."""
    segments = path.partition("?")[0].split("/")
    part = _PARTS.get("/".join(segments[:2])) or _PARTS.get("/".join(segments[:3]), _MAIN)
    return own_urls.get(part) or own_urls.get(_MAIN) or url


def parse_own_urls(document: Mapping[str, Any], url: str) -> Mapping[str, str]:
    """Map families to their base URLs, from a registry's regions; empty if all are at `url`.

    Also empty if no region lists `url`. URLs of another scheme are left out, so that no request to
    an https registry is sent over plain HTTP.
    """
    scheme = url.partition("://")[0]
    for region in document.get("regions", ()):
        endpoints: Mapping[str, str] = region.get("endpoints", {})
        if url in endpoints.values():
            known = {
                part: found
                for part, found in endpoints.items()
                if part in (_MAIN, *_PARTS.values()) and found.partition("://")[0] == scheme
            }
            return known if {*known.values()} != {url} else {}
    return {}
