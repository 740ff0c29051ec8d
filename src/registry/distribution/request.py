"""A request as the handlers see it: taken apart, its name and digest known to be well formed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cloudcore.serving.body import Receive, Scope, Sink, receive_into
from registry.distribution.auth import Grant
from registry.distribution.query import Query
from registry.oci.digest import Digest
from registry.oci.reference import Name

T = TypeVar("T")


class DataPlaneRequest:
    """One request to ``/v2``, after its path was matched and its caller authorized."""

    _query: Query | None = None

    def __init__(
        self, scope: Scope, receive: Receive, name: Name, argument: str, grant: Grant
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.name = name
        self.argument = argument
        self.grant = grant
        self.is_head = scope["method"] == "HEAD"
        # Most fields that are asked for are not there. Of several the first counts.
        self._fields: dict[bytes, bytes] = dict(reversed(scope["headers"]))

    def header(self, name: bytes) -> str | None:
        """Return a header's value, the first where there are several."""
        value = self._fields.get(name)
        return None if value is None else value.decode("latin-1")

    def list_header(self, name: bytes) -> str | None:
        """Return a header that is a list, all its lines as one (RFC 9110 §5.3)."""
        if name not in self._fields:
            return None
        lines = [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]
        return ", ".join(lines)

    @property
    def digest(self) -> Digest:
        """Return the path's digest.

        Raises:
            DigestInvalid: it is malformed.

        """
        return Digest.parse(self.argument)

    @property
    def query(self) -> Query:
        """Return the query parameters."""
        if self._query is None:  # a cached_property takes a lock, in Python 3.11
            self._query = Query(self.scope["query_string"])
        return self._query

    @property
    def content_length(self) -> int | None:
        """Return the declared length of the body; None when it is chunked or not declared."""
        text = self.header(b"content-length")
        return int(text) if text is not None and text.isdigit() and len(text) < 20 else None

    async def body(self, sink: Sink, finish: Callable[[bool], T]) -> T:
        """Move the body to `sink`; see `cloudcore.serving.body.receive_into`."""
        return await receive_into(self.scope, self.receive, sink, finish)
