"""Kinds of resources that use all that a description can say: shelves, books on them, and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, field
from sqlalchemy import Column, MetaData, Table

from cloudcore.db.base import Connection
from cloudcore.db.schema import Id
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods, Referrer
from cloudcore.resources.resource import (
    Filter,
    Record,
    Reference,
    ReferenceTarget,
    Resource,
    fixed,
    given,
    own,
)
from cloudcore.resources.routes import standard_routes
from cloudcore.resources.rows import Rows
from cloudcore.web.context import RequestContext
from cloudcore.wire import RequestBody

# Not in the schema of the product, so that its migrations know nothing of it.
SCHEMA: Final = MetaData()
accounts: Final = Table("accounts", SCHEMA, Column("id", Id, primary_key=True))
"""The table that the others refer to; identity's migrations have made it."""


class Shelf(Record, frozen=True, kw_only=True):
    """A shelf."""

    name: Annotated[str, Meta(min_length=1, max_length=63), fixed(heading="NAME")]
    tags: Annotated[dict[str, str], given()] = field(default_factory=dict)


class Book(Record, frozen=True, kw_only=True):
    """A book, which may stand on a shelf."""

    name: Annotated[str, Meta(min_length=1, max_length=63), fixed("its title", heading="TITLE")]
    pages: Annotated[int, Meta(ge=1), given("how long it is")]
    """How long it is."""
    kind: Annotated[Literal["novel", "atlas"], fixed()] = "novel"
    shelf: Annotated[Reference | None, given()] = None
    lent_until: Annotated[int | None, given(form="time")] = None
    words: Annotated[tuple[str, ...], given()] = ()
    is_lent: Annotated[bool, own()] = False
    note: Annotated[str | None, own(shows_null=True)] = None
    secret: Annotated[bytes | None, own(hidden=True)] = None


class Note(Record, frozen=True, kw_only=True):
    """A note on a book."""

    name: Annotated[str, fixed()]
    book: Annotated[Reference, fixed()]
    line: Annotated[int, own(hidden=True)] = 1


SHELF: Final = Resource(record=Shelf, service="test", one="shelf", many="shelves", quota=3)
BOOK: Final = Resource(
    record=Book,
    service="test",
    one="book",
    many="books",
    filters=(Filter("name"), Filter("kind")),
    refers={"shelf": ReferenceTarget(SHELF, "test:PutOn")},
    keeps_deleted=True,
)
NOTE: Final = Resource(
    record=Note,
    service="test",
    one="note",
    many="notes",
    refers={"book": ReferenceTarget(BOOK, "test:GetBook")},
)
SHELF_ROWS: Final = Rows(SHELF, schema=SCHEMA)
BOOK_ROWS: Final = Rows(BOOK, references={"shelf": SHELF_ROWS}, schema=SCHEMA)


def _check(new: Book, old: Book | None, _now: int) -> Book:
    if new.kind == "atlas" and new.pages < 10:
        raise InvalidInput("pages: an atlas has ten", field="pages", reason="out_of_range")
    return new


def _check_lent(_tx: Connection, found: Book) -> None:
    if found.lent_until is not None:
        raise Conflict("it is lent", reason="is_lent")


SHELVES: Final = Methods(SHELF_ROWS, referrers=(Referrer(BOOK_ROWS, "shelf"),))
NOTE_ROWS: Final = Rows(NOTE, references={"book": BOOK_ROWS}, schema=SCHEMA)


class Place(RequestBody):
    """Where in the book a note is."""

    line: int


async def _line(_ctx: RequestContext, given: Place | None) -> Mapping[str, object]:
    return {"line": 1 if given is None else given.line}


def _check_line(new: Note, _old: Note | None, _now: int) -> Note:
    if new.line < 1:
        raise InvalidInput("place: begins with 1", field="place", reason="out_of_range")
    return new


NOTES: Final = Methods(
    NOTE_ROWS,
    check=_check_line,
    targets={"book": BOOK_ROWS},
    composites=(
        Composite(
            name="place",
            shown=Place,
            given=Place,
            resolve=_line,
            show=lambda found: Place(line=found.line),
        ),
    ),
)
BOOKS: Final = Methods(
    BOOK_ROWS, check=_check, before_delete=_check_lent, targets={"shelf": SHELF_ROWS}
)
HANDLERS: Final = tuple(each for of in (SHELVES, BOOKS, NOTES) for each in standard_routes(of))
