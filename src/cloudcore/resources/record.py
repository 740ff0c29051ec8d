"""What a resource of an account has: a frozen struct whose fields say who sets them.

A record is what is stored. Requests, answers, options of commands and columns of tables follow from
its fields, so each is written once: its type with its bounds, its default, the words for persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
)

from msgspec import NODEFAULT, Struct, structs
from msgspec import field as struct_field

from cloudcore.jobs.faults import Fault

if TYPE_CHECKING:  # a server without commands need not load it
    from cloudcore.command_line import CellForm

Use = Literal["given", "fixed", "own"]
"""Who sets a field: its owner at any time, its owner at the creation only, or the platform."""


class Field(NamedTuple):
    """What a field of a record is for, besides its type."""

    use: Use
    words: str = ""
    """Help text of the option."""
    heading: str = ""
    """Of its column in tables; without one it has none."""
    form: CellForm = "text"
    """How a table shows it. A field with the form ``time`` is a moment: microseconds since the
    epoch in the record, RFC 3339 in requests and answers."""
    hidden: bool = False
    """It is in no answer."""
    shows_null: bool = False
    """An answer has null where there is no value, instead of leaving the field out."""
    is_long: bool = False
    """It is a text of many lines: a command reads it from a file."""


given: Final = partial(Field, "given")
fixed: Final = partial(Field, "fixed")
own: Final = partial(Field, "own")


class Record(Struct, kw_only=True, frozen=True):
    """Base of records: what all resources of accounts have.

    Moments are microseconds since the epoch.
    """

    id: str
    account_id: str
    region: str
    created_at: int
    updated_at: int


DELETING: Final = "deleting"


class Worked(Record, kw_only=True, frozen=True):
    """Base of records that have work (`cloudcore.work`)."""

    status: Annotated[str, own(heading="STATUS")]
    """``deleting`` from the request of its deletion until it is gone."""
    faults: Annotated[tuple[Fault, ...], own()] = ()
    """What goes wrong; a success clears it."""


class Reference(Struct, frozen=True):
    """Another resource of the account; the record has its id, and its name comes with it."""

    id: str
    name: str = ""


BASE: Final = Record.__struct_fields__


class Described(NamedTuple):
    """A field of a record."""

    name: str
    kind: Any
    """Its type, with its bounds."""
    use: Field
    default: Any
    """`msgspec.NODEFAULT` if it must be given."""

    @property
    def is_moment(self) -> bool:
        """Return True if it is a moment."""
        return self.use.form == "time"

    @property
    def is_optional(self) -> bool:
        """Return True if it may be None."""
        return type(None) in _members(self.bare)

    @property
    def bare(self) -> Any:  # noqa: ANN401 - a type
        """Return its type without bounds, at the first level."""
        return bare(self.kind)

    @property
    def plain(self) -> Any:  # noqa: ANN401 - a type
        """Return its type without bounds and without None."""
        members = [bare(each) for each in _members(self.bare) if each is not type(None)]
        return members[0] if len(members) == 1 else Union[tuple(members)]  # noqa: UP007

    @property
    def is_reference(self) -> bool:
        """Return True if it means another resource."""
        return self.plain is Reference

    @property
    def is_faults(self) -> bool:
        """Return True if it is the faults of a record that has work."""
        return bool(self.plain == tuple[Fault, ...])

    @property
    def is_text(self) -> bool:
        """Return True if its column has text as it is: a text or one of several words."""
        return self.plain is str or get_origin(self.plain) is Literal

    @property
    def is_document(self) -> bool:
        """Return True if its column has JSON: an object, a list or a struct."""
        return not (self.is_text or self.is_reference or self.plain in (int, bool, bytes))

    @property
    def is_bounded(self) -> bool:
        """Return True if the bounds of a number keep it within 32 bits."""
        metas = [each for kind in _members(self.kind) for each in getattr(kind, "__metadata__", ())]
        ends = [end for each in metas for end in (each.ge, each.le) if end is not None]
        return len(ends) == 2 and all(-(1 << 31) <= end < 1 << 31 for end in ends)

    @property
    def column(self) -> str:
        """Return the name of its column."""
        return f"{self.name}_id" if self.is_reference else self.name


@cache
def fields_of(record: type[Record]) -> Mapping[str, Described]:
    """Return the fields of a record, by name, without those that every record has."""
    return {
        each.name: Described(each.name, *_split(each.type), _default(each))
        for each in structs.fields(record)
        if each.name not in BASE
    }


def bare(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return a type without its bounds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _members(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _split(kind: Any) -> tuple[Any, Field]:  # noqa: ANN401 - a type
    """Return a type without its `Field`, and that."""
    if get_origin(kind) is not Annotated:
        raise TypeError(f"{kind}: a field says who sets it, by given, fixed or own")
    inner = get_args(kind)[0]
    rest: tuple[Any, ...] = kind.__metadata__
    (use,) = [each for each in rest if isinstance(each, Field)]
    kept = [each for each in rest if not isinstance(each, Field)]
    return (Annotated[(inner, *kept)] if kept else inner), use


def _default(info: structs.FieldInfo) -> Any:  # noqa: ANN401 - of any type
    if info.default_factory is not NODEFAULT:
        return struct_field(default_factory=info.default_factory)
    return info.default
