"""The tables of messages, their recipients and contents, and their queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa
from msgspec import structs
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, bound, columns_of, deletion, given
from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of, partial_index
from cloudcore.db.statement import Statement, paged
from cloudcore.db.tables import columns, indexes, named_index, not_negative, refers, table
from cloudcore.email.resources import (
    MESSAGE,
    STATUSES,
    WAITING,
    Message,
    MessageStatus,
    RecipientKind,
    status_of,
)
from cloudcore.quotas.limits import Counted, count_up_to_limit
from cloudcore.resources.rows import Rows

CONTENT_KEPT_SECONDS: Final = 7 * 24 * 3600
"""How long the content of a message is kept after its last delivery has ended."""
KEPT_SECONDS: Final = 30 * 24 * 3600
"""How long a message and its recipients are kept after its last delivery has ended."""
_RATES_KEPT_SECONDS: Final = 3600
IS_WAITING: Final = sa.text("status IN ('queued', 'deferred')")
_HAS_ENDED: Final = sa.text("ended_at IS NOT NULL")


def _of_message(table_name: str) -> sa.ForeignKeyConstraint:
    """Return a foreign key that deletes a row together with its message."""
    return sa.ForeignKeyConstraint(
        ["message_id", "account_id"],
        ["email_messages.id", "email_messages.account_id"],
        name=f"fk_{table_name}_message",
        ondelete="CASCADE",
    )


recipients = table(
    "email_recipients",
    columns(Id, "message_id KEY"),
    columns(sa.Integer, "position KEY"),  # from 0, in the order of to, cc and bcc
    columns(Id, "account_id"),
    columns(ByteOrdered, "region"),
    columns(sa.Text, "address"),  # as mail goes there: the domain in ASCII
    columns(ByteOrdered, "folded"),  # as suppressions compare it
    columns(sa.Text, "kind, status, reason NULL"),
    columns(sa.Integer, "attempts"),
    columns(Moment, "last_attempt_at NULL"),
    columns(sa.Text, "source_ip NULL"),  # the dedicated address; null: the shared one
    columns(Moment, "next_attempt_at NULL"),
    _of_message("email_recipients"),
    one_of("kind", "to", "cc", "bcc"),
    one_of("status", *STATUSES),
    not_negative("attempts"),
    sa.CheckConstraint(
        "(status IN ('queued', 'deferred')) = (next_attempt_at IS NOT NULL)",
        name="next_attempt_at",
    ),
    named_index("folded", "account_id, folded, message_id"),
    named_index("source_ip", "account_id, source_ip", IS_WAITING.text),
)
contents = table(
    "email_contents",
    columns(Id, "message_id KEY, account_id"),
    columns(sa.LargeBinary, "sealed"),  # under the root key
    columns(Moment, "ended_at NULL"),  # that of the message
    _of_message("email_contents"),
    named_index("ended_at", "ended_at", _HAS_ENDED.text),
)
rates = table(
    "email_rates",
    refers("account_id KEY", "accounts"),
    columns(Id, "identity_id KEY"),
    columns(sa.BigInteger, "second"),  # since the epoch
    columns(sa.Integer, "accepted"),
    indexes("second"),
)
_r = recipients.c
_c = contents.c


def _has_recipient(of: sa.Table) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        _r.message_id == of.c.id,
        _r.account_id == of.c.account_id,
        _r.folded == sa.bindparam("recipient"),
    )


def _is_of_identity(of: sa.Table) -> sa.ColumnElement[bool]:
    return given(of.c.identity) | (of.c.identity_id == sa.bindparam("identity"))


ROWS: Final = Rows(
    MESSAGE,
    one_of("status", *STATUSES),
    sa.CheckConstraint(
        "(status IN ('queued', 'deferred')) = (ended_at IS NULL)",
        name="ended_at",
    ),
    partial_index("ix_email_messages_waiting", "account_id", where=IS_WAITING),
    partial_index("ix_email_messages_ended_at", "ended_at", where=_HAS_ENDED),
    unique=sa.Index("ix_email_messages_identity", "account_id", "identity_id", "id"),
    types={"identity_id": Id, "template_id": Id},
    conditions={"recipient": _has_recipient, "identity": _is_of_identity},
)
_m = ROWS.table.c


class Recipient(NamedTuple):
    """A recipient of a message, with the status of the delivery."""

    message_id: str
    position: int
    """From 0, in the order of to, cc and bcc."""
    account_id: str
    region: str
    address: str
    folded: str
    """The address in canonical form, as in suppressions."""
    kind: RecipientKind
    status: MessageStatus
    reason: str | None
    attempts: int
    last_attempt_at: int | None
    source_ip: str | None
    """The dedicated address that the mail is sent from; None for the shared one."""
    next_attempt_at: int | None
    """None unless the recipient waits for an attempt."""


_OF_MESSAGE: Final = given(_r.message_id, _r.account_id)
_IS_IT: Final = (_OF_MESSAGE, given(_r.position))
_ADD_RECIPIENT: Final = Statement(recipients.insert().values(bound(Recipient._fields)))
_LIST_RECIPIENTS: Final = Statement(
    columns_of(recipients, Recipient._fields).where(_OF_MESSAGE).order_by(_r.position)
)
_FIND_RECIPIENT: Final = Statement(columns_of(recipients, Recipient._fields).where(*_IS_IT))
_CHANGEABLE: Final = ("status", "reason", "attempts", "last_attempt_at", "next_attempt_at")
_SAVE_RECIPIENT: Final = Statement(
    sa.update(recipients)
    .where(
        _r.message_id == sa.bindparam("of_message"),
        given(_r.account_id),
        _r.position == sa.bindparam("at"),
    )
    .values(bound(_CHANGEABLE))
)
_SAVE_SOURCE: Final = Statement(
    sa.update(recipients)
    .where(
        _r.message_id == sa.bindparam("of_message"),
        given(_r.account_id),
        _r.position == sa.bindparam("at"),
        IS_WAITING,
    )
    .values(source_ip=sa.bindparam("source"))
)
_ADD_CONTENT: Final = Statement(
    contents.insert().values(bound(("message_id", "account_id", "sealed", "ended_at")))
)
_FIND_CONTENT: Final = Statement(sa.select(_c.sealed).where(given(_c.message_id, _c.account_id)))
_END_CONTENT: Final = Statement(
    sa.update(contents)
    .where(_c.message_id == sa.bindparam("of_message"), given(_c.account_id))
    .values(ended_at=sa.bindparam("now"))
)
_ACCOUNT_OF: Final = Statement(sa.select(_m.account_id).where(given(_m.id)))
WAITING_MESSAGES: Final = Counted(
    MESSAGE.room,
    count_up_to_limit(
        MESSAGE.room,
        sa.select(_m.id).where(given(_m.account_id), IS_WAITING),
    ),
)
"""Counts the unsent messages of an account."""
_FIND_WAITING: Final = paged(
    sa.select(_m.id).where(
        given(_m.account_id, _m.identity_id),
        IS_WAITING,
    )
)
forget: Final = deletion(_m.ended_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the messages that ended over 30 days ago, with their recipients."""
forget_content: Final = deletion(_c.ended_at, kept_seconds=CONTENT_KEPT_SECONDS)
"""Deletes a batch of the contents of messages that ended over seven days ago."""
forget_rates: Final = deletion(rates.c.second, kept_seconds=_RATES_KEPT_SECONDS, unit=MICROSECONDS)
"""Deletes a batch of the rates whose second was over an hour ago."""
_counted: Final = insert(rates).values(
    **bound(("account_id", "identity_id", "second")), accepted=ONE
)
_is_later: Final = _counted.excluded.second > rates.c.second
_COUNT_RATE: Final = Statement(
    # If clocks differ, the latest second counts: a slower clock never resets the counter.
    _counted.on_conflict_do_update(
        index_elements=["account_id", "identity_id"],
        set_={
            "second": sa.case((_is_later, _counted.excluded.second), else_=rates.c.second),
            "accepted": sa.case(
                (_is_later, ONE),
                else_=rates.c.accepted + ONE,
            ),
        },
        where=_is_later | (rates.c.accepted < sa.bindparam("most")),
    )
)


def add(tx: Connection, new: Message, given: Sequence[Recipient], sealed: bytes) -> None:
    """Insert a message with its recipients and its sealed content."""
    ROWS.add(tx, new)
    for each in given:
        tx.execute(_ADD_RECIPIENT, **each._asdict())
    tx.execute(
        _ADD_CONTENT,
        message_id=new.id,
        account_id=new.account_id,
        sealed=sealed,
        ended_at=new.ended_at,
    )


def list_recipients(tx: Connection, account_id: str, message_id: str) -> list[Recipient]:
    """Return the recipients of a message, in the order of their positions."""
    rows = tx.rows(_LIST_RECIPIENTS, account_id=account_id, message_id=message_id)
    return [Recipient(*row) for row in rows]


def find_recipient(
    tx: Connection, account_id: str, message_id: str, position: int
) -> Recipient | None:
    """Return the recipient of a message at a position, or None if there is none."""
    row = tx.row(_FIND_RECIPIENT, account_id=account_id, message_id=message_id, position=position)
    return None if row is None else Recipient(*row)


def find_content(tx: Connection, account_id: str, message_id: str) -> bytes | None:
    """Return the sealed content of a message, or None if it is deleted."""
    row = tx.row(_FIND_CONTENT, account_id=account_id, message_id=message_id)
    return None if row is None else bytes(row[0])


def account_of(tx: Connection, message_id: str) -> str | None:
    """Return the account id of a message, or None if the message is deleted.

    The caller must have authenticated the message id.
    """
    row = tx.row(_ACCOUNT_OF, id=message_id)
    return None if row is None else row[0]


def find_waiting(tx: Connection, account_id: str, identity_id: str) -> str | None:
    """Return the id of one unsent message of a sending identity, or None."""
    row = tx.row(_FIND_WAITING, account_id=account_id, identity_id=identity_id, limit=1)
    return None if row is None else row[0]


def change_recipient(tx: Connection, changed: Recipient, now: int) -> Message:
    """Store the status of a recipient; update the status of the message, and return the message.

    Lock the message first (`ROWS.lock`), so that of two concurrent changes the second sees the
    first.
    """
    tx.execute(
        _SAVE_RECIPIENT,
        of_message=changed.message_id,
        account_id=changed.account_id,
        at=changed.position,
        **{name: getattr(changed, name) for name in _CHANGEABLE},
    )
    found = ROWS.get(tx, changed.account_id, changed.region, changed.message_id)
    every = list_recipients(tx, changed.account_id, changed.message_id)
    status = status_of(each.status for each in every)
    ended_at = None if status in WAITING else found.ended_at or now
    if ended_at is not None and found.ended_at is None:
        tx.execute(_END_CONTENT, of_message=found.id, account_id=found.account_id, now=ended_at)
    return ROWS.save(tx, structs.replace(found, status=status, ended_at=ended_at, updated_at=now))


def save_source(tx: Connection, changed: Recipient) -> None:
    """Store the source IP of mail to a recipient, unless the mail was already sent."""
    tx.execute(
        _SAVE_SOURCE,
        of_message=changed.message_id,
        account_id=changed.account_id,
        at=changed.position,
        source=changed.source_ip,
    )


def count_rate(tx: Connection, account_id: str, identity_id: str, most: int, now: int) -> bool:
    """Count a message of an identity; return False if there were already `most` in this second."""
    second = now // MICROSECONDS
    of = {"account_id": account_id, "identity_id": identity_id}
    return tx.execute(_COUNT_RATE, **of, second=second, most=most) == 1
