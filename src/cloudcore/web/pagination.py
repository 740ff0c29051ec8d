"""Page through lists with ``limit`` and ``marker``.

A page begins after the sort key of the previous page's last row, so inserts and deletes in between
neither repeat nor skip other rows. A marker is that key, sealed together with its list and filter:
callers cannot read or forge a marker, or use it for another list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, TypeVarTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from cloudcore import base64url
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.keyring import Keyring, KeyringError
from cloudcore.resource_names import UuidParameter
from cloudcore.wire import ResponseBody

if TYPE_CHECKING:
    from cloudcore.web.context import RequestContext

T = TypeVar("T")

MAX_LIMIT: Final = 200

Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="How many rows a page has.")]
Marker = Annotated[str, Meta(description="The marker of the page before.")] | None


class PageQuery(Struct, kw_only=True):
    """Base of a list's query parameters."""

    limit: Limit = 50
    marker: Marker = None


class NamedPageQuery(PageQuery, kw_only=True):
    """Base of the query parameters of a list of named resources."""

    name: str | None = None
    """Only the one of this name."""


class UuidPage(Struct, kw_only=True):
    """Base of a list's query parameters where the marker is the last row's id."""

    limit: Limit = 50
    marker: UuidParameter | None = None


class PageMeta(ResponseBody):
    """The metadata of a page."""

    total: int
    """Rows of the whole list, under the filter."""
    limit: int
    has_more: bool
    marker: str | UnsetType = UNSET
    """Where the next page begins; absent on the last one."""


class Pager:
    """One request for a page."""

    def __init__(
        self, keyring: Keyring, query: PageQuery | UuidPage, within: Sequence[str]
    ) -> None:
        """Open the query's marker; `within` identifies the list.

        Raise `InvalidInput` if the marker is invalid or belongs to another list.
        """
        self.limit = query.limit
        self._keyring = keyring
        self._is_uuid = isinstance(query, UuidPage)
        self._context = _context(query, within)
        self.position: tuple[Any, ...] | None = None
        """The sort key after which the page begins; None for the first page."""
        if query.marker is not None:
            marker = query.marker
            self.position = (marker.lower(),) if self._is_uuid else self._open(marker)

    @property
    def wanted(self) -> int:
        """Return the number of rows to select: one more than the limit, to detect a next page."""
        return self.limit + 1

    def cut(
        self, rows: Sequence[T], total: int, key: Callable[[T], tuple[Any, ...]]
    ) -> tuple[Sequence[T], PageMeta]:
        """Cut `rows` to the limit; return (page, meta). `key` maps a row to its sort key."""
        page = rows[: self.limit]
        has_more = len(rows) > self.limit
        marker = self.marker(key(page[-1])) if has_more else UNSET
        return page, PageMeta(total=total, limit=self.limit, marker=marker, has_more=has_more)

    def marker(self, key: tuple[Any, ...]) -> str:
        """Return the marker of the page after the sort key `key`."""
        if self._is_uuid:
            return str(key[0])
        return base64url.encode(self._keyring.seal(msgspec.msgpack.encode(key), self._context))

    def _open(self, marker: str) -> tuple[Any, ...]:
        try:
            key = self._keyring.open(_decoded(marker), self._context)
        except (ValueError, KeyringError):
            raise InvalidInput(
                "the marker is not one of this list", field="marker", reason="malformed"
            ) from None
        return tuple(msgspec.msgpack.decode(key))


def _decoded(marker: str) -> bytes:
    """Decode a marker; reject non-canonical encodings."""
    sealed = base64url.decode(marker)
    if base64url.encode(sealed) != marker:
        raise ValueError(marker)
    return sealed


def _context(query: PageQuery | UuidPage, within: Sequence[str]) -> str:
    """Return the sealing context of a marker: the list and the filter."""
    fields = msgspec.structs.asdict(query)
    filters = {name: fields[name] for name in fields.keys() - {"limit", "marker"}}
    scope = msgspec.json.encode([within, sorted(filters.items())])
    return f"marker:{hashlib.sha256(scope).hexdigest()}"


Ts = TypeVarTuple("Ts")


async def read_page(
    ctx: RequestContext,
    query: PageQuery,
    rows: Callable[[Connection, *Ts, str, int], Sequence[T]],
    count: Callable[[Connection, *Ts], int],
    *within: *Ts,
    key: Callable[[T], str],
) -> tuple[Sequence[T], PageMeta]:
    """Return (page, meta) of the list that `query` requests; `key` maps a row to its sort key.

    `rows` gets `within`, the key to start after and the number of rows; `count` gets `within`, and
    counts the whole list.
    """
    pager = ctx.pager(query, *map(str, within))
    (after,) = pager.position or ("",)

    def read(tx: Connection) -> tuple[Sequence[T], int]:
        return rows(tx, *within, after, pager.wanted), count(tx, *within)

    found, total = await ctx.database.read(read)
    return pager.cut(found, total, lambda row: (key(row),))
