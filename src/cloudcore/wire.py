"""Base types of request and response bodies, and the format of moments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeVar

from msgspec import NODEFAULT, UNSET, Meta, Struct, UnsetType, structs

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

Timestamp = Annotated[datetime, Meta(tz=True)]
"""A moment in a request: RFC 3339 with an offset, which is required."""

RFC3339 = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A moment in a response, formatted by `rfc3339`."""


class RequestBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies; unknown fields are refused, because they may be typos.

    In a PATCH, fields default to `msgspec.UNSET`: an absent field keeps its value. Null resets a
    field to its default, if the body of the creation has a default for it (`changes_of`).
    """

    saturates_integers: ClassVar[bool] = False
    """True to read an integer beyond 64 bits as the nearest one within, instead of refusing it."""
    max_parts: ClassVar[int] = 20_000
    """Maximum number of names and values in the body."""


class ResponseBody(Struct, kw_only=True):
    """Base of response bodies; clients ignore fields they do not know."""


def rfc3339(moment: int) -> str:
    """Format a moment (microseconds since the epoch) in UTC, always with six decimals.

    Raise `OverflowError` for a moment after `LAST_MOMENT`.
    """
    at = _EPOCH + timedelta(microseconds=moment)
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"


def moment_of(at: datetime) -> int:
    """Convert an aware date-time to microseconds since the epoch."""
    return (at - _EPOCH) // _MICROSECOND


LAST_MOMENT: Final = moment_of(datetime.max.replace(tzinfo=UTC))
"""The end of the year 9999 in UTC. With a negative offset, a caller can give a later moment."""


def changes_of(data: Struct, new: type[Struct] | None = None) -> dict[str, Any]:
    """Return the fields that are present in a PATCH body, with their values.

    If `new`, the body of the creation, has a default for a field, null is replaced by that default.
    """
    optional = {} if new is None else _optional(new)
    return {
        name: _default(optional[name]) if value is None and name in optional else value
        for name, value in structs.asdict(data).items()
        if value is not UNSET
    }


@cache
def _optional(new: type[Struct]) -> Mapping[str, structs.FieldInfo]:
    """Return the fields that may be omitted from a body, by name."""
    return {each.name: each for each in structs.fields(new) if not each.required}


def _default(of: structs.FieldInfo) -> Any:  # noqa: ANN401 - of any type
    return of.default if of.default_factory is NODEFAULT else of.default_factory()


def or_absent(value: T | None) -> T | UnsetType:
    """Return a value for a response, or `UNSET` if it is None, so that the field is omitted."""
    return UNSET if value is None else value
