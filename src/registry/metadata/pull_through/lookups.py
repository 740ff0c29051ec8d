"""What is known of references at upstreams: who is fetching them, and which do not exist."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, or_, select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import bound
from cloudcore.db.statement import Statement
from registry.metadata.pull_through.image_tables import upstream_lookups

_u = upstream_lookups.c
_KEY: Final = (
    _u.rule_id == bindparam("rule_id"),
    _u.repository == bindparam("repository"),
    _u.reference == bindparam("reference"),
)
_new = insert(upstream_lookups).values(
    **bound(("rule_id", "repository", "reference", "fetching_until", "absent_until", "ends_at")),
)
_ANSWER: Final = {
    name: _new.excluded[name] for name in ("fetching_until", "absent_until", "ends_at")
}
_OF_KEY: Final = ["rule_id", "repository", "reference"]
_BEGIN: Final = Statement(
    _new.on_conflict_do_update(
        index_elements=_OF_KEY,
        set_=_ANSWER,
        where=or_(_u.fetching_until.is_(None), _u.fetching_until <= bindparam("now")),
    )
)
_NOTE: Final = Statement(_new.on_conflict_do_update(index_elements=_OF_KEY, set_=_ANSWER))
_IS_ABSENT: Final = Statement(
    select(text("1")).select_from(upstream_lookups).where(*_KEY, _u.absent_until > bindparam("now"))
)
_RENEW: Final = Statement(
    upstream_lookups.update()
    .where(*_KEY, _u.fetching_until.is_not(None))
    .values(fetching_until=bindparam("until"), ends_at=bindparam("until"))
)
_END: Final = Statement(upstream_lookups.delete().where(*_KEY))
_FORGET_ABSENT: Final = Statement(
    upstream_lookups.delete().where(
        _u.rule_id == bindparam("rule_id"), _u.absent_until.is_not(None)
    )
)
_FORGET: Final = deletion(_u.ends_at)


def begin_fetch(
    tx: Connection, rule_id: str, repository: str, reference: str, now: int, until: int
) -> bool:
    """Claim a reference, to fetch it until some moment; return False if another one does.

    A process that dies loses its claim at that moment.
    """
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    claim = {"fetching_until": until, "absent_until": None, "ends_at": until}
    return tx.execute(_BEGIN, **of, **claim, now=now) == 1


def renew_fetch(tx: Connection, rule_id: str, repository: str, reference: str, until: int) -> None:
    """Keep a claim, unless it has ended, until a later moment."""
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    tx.execute(_RENEW, **of, until=until)


def end_fetch(tx: Connection, rule_id: str, repository: str, reference: str) -> None:
    """Forget the claim of a reference."""
    tx.execute(_END, rule_id=rule_id, repository=repository, reference=reference)


def note_absence(tx: Connection, rule_id: str, repository: str, reference: str, until: int) -> None:
    """Remember until some moment that an upstream does not have a reference, and end its claim."""
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    tx.execute(_NOTE, **of, fetching_until=None, absent_until=until, ends_at=until)


def is_absent(tx: Connection, rule_id: str, repository: str, reference: str, now: int) -> bool:
    """Return True if the upstream has said a moment ago that it does not have a reference."""
    of = {"rule_id": rule_id, "repository": repository, "reference": reference}
    return tx.row(_IS_ABSENT, **of, now=now) is not None


def forget_absences(tx: Connection, rule_id: str) -> None:
    """Forget what the upstream of a rule does not have."""
    tx.execute(_FORGET_ABSENT, rule_id=rule_id)


def forget_lookups(tx: Connection, now: int) -> int:
    """Delete a batch of what is known no longer; return how many rows."""
    return tx.execute(_FORGET, before=now)
