"""Shapes on the wire: what bodies and queries are made of, and how moments are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar, Final

from msgspec import UNSET, Meta, Struct, structs

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

Timestamp = Annotated[datetime, Meta(tz=True)]
"""A moment a caller sends: RFC 3339 with its offset; one without is refused."""

RFC3339 = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A moment in an answer, as `rfc3339` writes it."""


class RequestBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies: a field that is not known is refused, since it may be a typo.

    In a PATCH a field defaults to `msgspec.UNSET`: absent keeps, null clears where it may.
    """

    saturates_integers: ClassVar[bool] = False
    """An integer beyond 64 bits is read as the largest or smallest within, instead of refused."""


class ResponseBody(Struct, kw_only=True):
    """Base of response bodies; clients ignore fields they do not know."""


def rfc3339(moment: int) -> str:
    """Return a moment (microseconds since the epoch) in UTC, always with six decimals.

    There is no text for one after `LAST_MOMENT`.
    """
    at = _EPOCH + timedelta(microseconds=moment)
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"


def moment_of(at: datetime) -> int:
    """Return an aware date-time as microseconds since the epoch."""
    return (at - _EPOCH) // _MICROSECOND


LAST_MOMENT: Final = moment_of(datetime.max.replace(tzinfo=UTC))
"""The end of the year 9999 in UTC. West of Greenwich a caller can name a later one."""


def changes_of(data: Struct) -> dict[str, object]:
    """Return the fields that a PATCH gives."""
    return {name: value for name, value in structs.asdict(data).items() if value is not UNSET}
