"""The maximum numbers of open upload sessions, checked when a session begins."""

from __future__ import annotations

from typing import Final, NamedTuple

import sqlalchemy as sa

from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import ONE, ZERO, given
from cloudcore.db.statement import Statement
from cloudcore.quotas.limits import Counted, QuotaUse, limit_query
from registry.metadata.pull_through.tables import blob_fills
from registry.metadata.quotas import IS_BEYOND, USE, read_use
from registry.metadata.tables import uploads
from registry.quotas import UPLOADS

_u = uploads.c


class LimitParameters(NamedTuple):
    """The parameters of `FULL`, except the ids of the repository and the account."""

    now: int
    of_repository: int
    of_account: int
    adding: int
    """The number of bytes still to be received, as far as it is known."""


class Room(NamedTuple):
    """Whether a new session may begin: which maximum is exhausted, and the account's bytes."""

    full: str | None
    """The exhausted maximum: of sessions (``repository`` or ``account``) or ``bytes``; or None."""
    use: QuotaUse | None
    """Stored bytes of the account and their limit; None without a limit."""


def _text(text: str) -> sa.ColumnElement[str]:
    return sa.literal_column(f"'{text}'")


def _has_open(column: str, beyond: sa.ColumnElement[int]) -> sa.Exists:
    """Build the condition that more than `beyond` sessions are open.

    Sessions count if their `column` equals the parameter of the same name. Sessions of the
    platform, which fetch blobs from upstreams, do not count. As they are few, their number is added
    to `beyond`; then the condition reads only an index.
    """
    fetching = uploads.alias("fetching")
    fills = (
        sa.select(sa.func.count())
        .select_from(blob_fills)
        .where(
            given(blob_fills.c.account_id),
            sa.exists().where(
                fetching.c.id == blob_fills.c.upload_id,
                fetching.c[column] == sa.bindparam(column),
                fetching.c.expires_at > sa.bindparam("now"),
            ),
        )
        .scalar_subquery()
    )
    found = sa.select(_u.expires_at).where(
        _u[column] == sa.bindparam(column), _u.expires_at > sa.bindparam("now")
    )
    return sa.exists(found.limit(ONE).offset(beyond + fills))


_SESSIONS: Final = limit_query(UPLOADS)
_OF_ACCOUNT: Final = sa.func.coalesce(
    _SESSIONS - ONE, sa.bindparam("of_account", type_=sa.Integer())
)
FULL: Final = sa.case(
    (
        _has_open("repository_id", sa.bindparam("of_repository", type_=sa.Integer())),
        _text("repository"),
    ),
    (ZERO == _SESSIONS, _text("account")),  # there is no offset below 0
    (_has_open("account_id", _OF_ACCOUNT), _text("account")),
    (IS_BEYOND, _text("bytes")),
)
"""The maximum that is exhausted, or null: ``repository`` or ``account`` for open sessions of
``:repository_id`` and ``:account_id``, ``bytes`` if ``:adding`` more bytes exceed the account's
limit."""
ROOM: Final = (FULL, *USE)
"""The columns that `room_of` reads."""
COUNTED: Final = Counted(
    UPLOADS,
    sa.select(sa.func.count())
    .select_from(uploads)
    .where(
        _u.account_id == sa.bindparam("account_id"),
        _u.expires_at > sa.bindparam("now"),
        ~sa.exists().where(blob_fills.c.upload_id == _u.id),
    ),
)
_FIND_ROOM: Final = Statement(sa.select(*ROOM))


def find_room(
    tx: Connection,
    repository_id: str,
    account_id: str,
    now: int,
    of_repository: int,
    of_account: int,
    adding: int = 0,
) -> Room:
    """Return which limit, if any, is exhausted for a session with a row and `adding` bytes.

    `of_repository` and `of_account` are the maximum numbers of open sessions; the query reads no
    more index entries than that.
    """
    if of_repository <= 0 or of_account <= 0:
        return Room("repository" if of_repository <= 0 else "account", None)
    row = tx.row(
        _FIND_ROOM,
        repository_id=repository_id,
        account_id=account_id,
        now=now,
        of_repository=of_repository - 1,
        of_account=of_account - 1,
        adding=adding,
    )
    assert row is not None
    return room_of(row)


def room_of(row: Row) -> Room:
    """Convert a row of the columns `ROOM`."""
    return Room(row[0], read_use(row[1:3]))
