"""Rate limits: fixed windows per endpoint and subject, in the database so that workers share them.

The guard calls `count_request` for a route whose `opt` has `rate_limited`; other limits, such as
the one for wrong passwords, call it with their own endpoint and budget. The first request opens a
window. The first refusal reports when the window ends. A retry before that is refused and restarts
the window, still exhausted, unless the budget says otherwise.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, deletion, find_one
from cloudcore.db.schema import ByteOrdered, Moment
from cloudcore.db.statement import Statement
from cloudcore.db.tables import columns, indexes, table

rate_windows = table(
    "rate_windows",
    columns(ByteOrdered, "endpoint KEY, subject KEY"),
    columns(Moment, "window_ends_at"),
    columns(sa.BigInteger, "count, refused"),
    indexes("window_ends_at"),
)


class Budget(NamedTuple):
    """How many requests a window admits, and how long it is."""

    limit: int
    window_seconds: int
    is_extended: bool = True
    """True if a refused retry restarts the window. False where strangers could extend it."""


DEFAULT_BUDGET: Final = Budget(limit=60, window_seconds=60)


class Window(NamedTuple):
    """One subject's window at one endpoint."""

    ends_at: int
    """Microseconds since the epoch."""
    admitted: int
    refused: int


class RateLimitStatus(NamedTuple):
    """The rate limit status of a subject after a request: the values of the three headers."""

    limit: int
    remaining: int
    reset: int
    """Seconds, at least 1."""
    is_refused: bool


def advance(window: Window | None, budget: Budget, now: int) -> Window:
    """Count one more request; return the new window."""
    length = budget.window_seconds * MICROSECONDS
    if window is None or window.ends_at <= now:
        return Window(now + length, admitted=1, refused=0)
    if window.admitted < budget.limit:
        return window._replace(admitted=window.admitted + 1, refused=0)
    if window.refused == 0 or not budget.is_extended:
        return window._replace(refused=window.refused + 1)
    return window._replace(ends_at=now + length, refused=window.refused + 1)


def status_of(window: Window, budget: Budget, now: int) -> RateLimitStatus:
    """Return the rate limit status for a window that `advance` returned."""
    left = -(-(window.ends_at - now) // MICROSECONDS)
    remaining = max(0, budget.limit - window.admitted)
    return RateLimitStatus(budget.limit, remaining, left, is_refused=window.refused > 0)


_w = rate_windows.c
_IS_WINDOW: Final = (
    _w.endpoint == sa.bindparam("for_endpoint"),
    _w.subject == sa.bindparam("for_subject"),
)
_WINDOW: Final = sa.select(_w.window_ends_at, _w.count, _w.refused).where(*_IS_WINDOW)
_NEW: Final[dict[str, sa.BindParameter[Any]]] = {
    "window_ends_at": sa.bindparam("ends_at"),
    "count": sa.bindparam("admitted"),
    "refused": sa.bindparam("refused"),
}
_FIND: Final = Statement(_WINDOW)
_OPEN: Final = Statement(
    insert(rate_windows)
    .values(endpoint=sa.bindparam("for_endpoint"), subject=sa.bindparam("for_subject"), **_NEW)
    .on_conflict_do_nothing()
)
_LOCK: Final = Statement(_WINDOW.with_for_update())
_ADVANCE: Final = Statement(sa.update(rate_windows).where(*_IS_WINDOW).values(**_NEW))
_GIVE_BACK: Final = Statement(
    sa.update(rate_windows)
    .where(*_IS_WINDOW, _w.window_ends_at > sa.bindparam("now"), _w.count > ZERO)
    .values(count=_w.count - ONE, refused=ZERO)
)
forget_ended: Final = deletion(_w.window_ends_at)
"""Deletes a batch of the windows that have ended."""


def count_request(
    connection: Connection, endpoint: str, subject: str, budget: Budget, now: int
) -> RateLimitStatus:
    """Count a request against its subject's window; return the status."""
    whose = {"for_endpoint": endpoint, "for_subject": subject}
    window = advance(None, budget, now)
    if not connection.execute(_OPEN, **whose, **window._asdict()):
        window = advance(find_one(connection, Window, _LOCK, **whose), budget, now)
        connection.execute(_ADVANCE, **whose, **window._asdict())
    return status_of(window, budget, now)


def rate_limit_headers(status: RateLimitStatus) -> list[tuple[bytes, bytes]]:
    """Return the rate limit headers; ``Retry-After`` is added with the error."""
    return [
        (b"x-ratelimit-limit", b"%d" % status.limit),
        (b"x-ratelimit-remaining", b"%d" % status.remaining),
        (b"x-ratelimit-reset", b"%d" % status.reset),
    ]


def seconds_exhausted(
    connection: Connection, endpoint: str, subject: str, budget: Budget, now: int
) -> int:
    """Return the seconds until a request would be admitted, without counting one; 0 means now."""
    window = find_one(connection, Window, _FIND, for_endpoint=endpoint, for_subject=subject)
    if window is None or window.ends_at <= now or window.admitted < budget.limit:
        return 0
    return status_of(window, budget, now).reset


def give_back(tx: Connection, endpoint: str, subject: str, now: int) -> int:
    """Credit back one request that `count_request` admitted, unless its window has ended.

    Return the number of windows changed, 1 or 0.
    """
    return tx.execute(_GIVE_BACK, for_endpoint=endpoint, for_subject=subject, now=now)
