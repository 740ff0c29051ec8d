"""A parsed request: its headers, conditions, body, and query.

Ambiguous query parameters are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import quote

from cloudcore.errors import InvalidInput, PreconditionFailed
from cloudcore.serving import asgi
from cloudcore.serving.bodies.budget import BODIES
from cloudcore.serving.kept_answers import EXTENSION as KEEP
from cloudcore.web.query import parse_fields
from cloudcore.web.revisions import tags_named
from registry.distribution.auth import Grant
from registry.errors import ListQueryInvalid, NameInvalid
from registry.oci.digest import Digest
from registry.oci.reference import Name, parse_name
from registry.services.blobs.upload_bodies import SmallBody
from registry.services.changes import Change
from registry.services.context import ServiceContext
from registry.services.tags import details
from registry.services.tags.pointers import Precondition

T = TypeVar("T")


class DataPlaneRequest:
    """One request to ``/v2`` whose path was matched and whose caller was authorized."""

    _query: Query | None = None

    def __init__(
        self, scope: asgi.Scope, receive: asgi.Receive, name: Name, argument: str, grant: Grant
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.name = name
        self.argument = argument
        self.grant = grant
        self.is_head = scope["method"] == "HEAD"
        # A dictionary, as most look-ups find nothing. Of repeated headers the first counts.
        self._fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, the first if it is repeated, or None."""
        value = self._fields.get(name)
        return None if value is None else value.decode("latin-1")

    def list_header(self, name: bytes) -> str | None:
        """Return a list header with all its lines joined, or None (RFC 9110 §5.3)."""
        if name not in self._fields:
            return None
        lines = [value.decode("latin-1") for value in asgi.header_values(self.scope, name)]
        return ", ".join(lines)

    def change(self, ctx: ServiceContext) -> Change:
        """Return the caller, time and registry of a change that this request makes."""
        return ctx.change_by(self.grant.principal, self.grant.source, self.grant.client)

    @property
    def may_keep(self) -> bool:
        """Return True if the server is able to reuse the response."""
        return KEEP in self.scope.get("extensions", ())

    @property
    def digest(self) -> Digest:
        """Return the path's digest, or raise DigestInvalid."""
        return Digest.parse(self.argument)

    @property
    def query(self) -> Query:
        """Return the query parameters."""
        if self._query is None:  # a cached_property takes a lock, in Python 3.11
            self._query = Query(self.scope["query_string"])
        return self._query

    @property
    def content_length(self) -> int | None:
        """Return ``Content-Length``, or None if it is missing or malformed."""
        value = self._fields.get(b"content-length")
        return int(value) if value is not None and value.isdigit() and len(value) < 20 else None

    async def body(self, sink: asgi.Sink, finish: Callable[[bool], T]) -> T:
        """Move the body to `sink`, and return the result of `finish` (`asgi.receive_into`)."""
        return await asgi.receive_into(self.scope, self.receive, sink, finish)

    async def read_small_body(self, limit: int) -> SmallBody | None:
        """Read a body of at most `limit` bytes; return None for a longer one, for `body` to read.

        Raise `NoRoom` if too many bodies are arriving at once.
        """
        with BODIES.hold() as hold:
            few = await asgi.read_small_body(hold.metered(self.receive), limit)
        if isinstance(few, asgi.BodyStart):
            self.scope, self.receive = asgi.replay_body_start(self.scope, self.receive, few)
            return None
        return SmallBody(*few)

    def give_back(self, few: SmallBody) -> None:
        """Undo `read_small_body`, so that the body can be read again."""
        self.scope, self.receive = asgi.replay_body(
            self.scope, self.receive, few.data, is_complete=few.is_complete
        )


def etag(digest: str) -> tuple[bytes, bytes]:
    """Return the ``ETag`` header for content with this digest."""
    return (b"etag", b'"%b"' % digest.encode())


def require_match(request: DataPlaneRequest, digest: str) -> None:
    """Check ``If-Match`` before every other condition (RFC 9110 §13.2.2).

    Raise `PreconditionFailed` if the header does not contain this digest, compared strongly
    (§13.1.1).
    """
    header = request.list_header(b"if-match")
    if header is None:
        return
    if tags_named(header, strongly=True).isdisjoint({digest, "*"}):
        raise PreconditionFailed(
            "If-Match names other content (entity tags are digests in quotes)", digest=str(digest)
        )


def is_not_modified(request: DataPlaneRequest, digest: str) -> bool:
    """Return True if ``If-None-Match`` contains this digest, so that the response is 304."""
    header = request.list_header(b"if-none-match")
    return header is not None and not tags_named(header).isdisjoint({digest, "*"})


def range_still_holds(request: DataPlaneRequest, digest: str) -> bool:
    """Return True if ``Range`` applies: there is no ``If-Range``, or it is this digest."""
    header = request.header(b"if-range")
    return header is None or header.strip() == f'"{digest}"'


def tag_precondition(request: DataPlaneRequest) -> Precondition | None:
    """Return the condition of a request on a tag, or None; see `details.tag_precondition`."""
    return details.tag_precondition(
        request.list_header(b"if-match"), request.list_header(b"if-none-match")
    )


_NUMBER: Final = re.compile(r"[0-9]+")
_MAX_PARAMETERS: Final = 200
_MAX_CURSOR: Final = 512


class Query:
    """The parameters of one request, each with all its values in order."""

    def __init__(self, query_string: bytes, *, is_form: bool = False) -> None:
        """Parse a query, where ``+`` is literal (RFC 3986), or a form, where it is a space."""
        self._values: dict[str, list[str]] = {}
        if not query_string:
            return
        if not query_string.isascii():
            raise _unreadable()
        try:
            fields = parse_fields(query_string, max_fields=_MAX_PARAMETERS, plus_is_blank=is_form)
        except InvalidInput:
            raise _unreadable() from None
        for key, value in fields:
            self._values.setdefault(key, []).append(value)

    def has(self, key: str) -> bool:
        """Return True if the parameter is present."""
        return key in self._values

    def all(self, key: str) -> list[str]:
        """Return all values of a parameter, in order."""
        return self._values.get(key, [])

    def one(self, key: str, error: type[InvalidInput] = InvalidInput) -> str | None:
        """Return the value of a parameter, or None; raise `error` if there are several."""
        values = self._values.get(key)
        if values is None:
            return None
        if len(values) > 1:
            raise error(f"the parameter {key} is given more than once")
        return values[0]


def page_size(query: Query, most: int) -> int:
    """Return ``n``, limited to `most`; without ``n``, return `most` (end-8b).

    Raise `ListQueryInvalid` if ``n`` is not a decimal number, or is repeated.
    """
    text = query.one("n", ListQueryInvalid)
    if text is None:
        return most
    if not _NUMBER.fullmatch(text):
        raise ListQueryInvalid("n must be a number of entries, at least 0")
    return most if len(text) > 9 else min(int(text), most)


def page_cursor(query: Query) -> str:
    """Return ``last``, after which the page starts, or "" if it is absent.

    Raise `ListQueryInvalid` if ``last`` has a control character, is too long, or is repeated.
    """
    text = query.one("last", ListQueryInvalid) or ""
    if len(text) > _MAX_CURSOR or not text.isprintable():
        raise ListQueryInvalid("last must be an entry of the list")
    return text


def mount_source(query_string: bytes) -> Name | None:
    """Return the repository in the ``from`` of a mount request, or None if absent or invalid."""
    try:
        query = Query(query_string)
        return parse_name(query.one("from") or "") if query.has("mount") else None
    except (InvalidInput, NameInvalid):
        return None


def next_link(path: str, **parameters: str | int) -> tuple[bytes, bytes]:
    """Return the ``Link`` header to the next page (RFC 8288)."""
    query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in parameters.items())
    return (b"link", f'<{path}?{query}>; rel="next"'.encode())


def _unreadable() -> InvalidInput:
    return InvalidInput(
        f"the query must be percent-encoded UTF-8 of at most {_MAX_PARAMETERS} parameters"
    )
