"""The search index for parts of names: read pages of matches, and update the index.

`registry.metadata.search_tables` describes the tables and what writes them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, literal_column, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import given, value
from cloudcore.db.statement import Statement, listed, page, paged, text_list
from registry.metadata.search_tables import IS_UNSETTLED, TERM_LENGTH, search_names, search_terms
from registry.metadata.tables import LAST_CHARACTER, repositories

KINDS: Final = ("repository", "tag")
_SCOPE_DIGITS: Final = 12


_n = search_names.c
_s = search_terms.c
_r = repositories.c

_page = page(
    select(_s.term, _s.name_id)
    .where(
        tuple_(_s.term, _s.name_id)
        > tuple_(value("after", _s.term), value("after_id", _s.name_id)),
        _s.term <= bindparam("last"),
    )
    .order_by(_s.term, _s.name_id)
).subquery("page")
# Outer joins: a row without a live name counts as read too, so the cost of a page is bounded.
_LIST: Final = Statement(
    select(_page.c.term, _page.c.name_id, _n.name, _r.id, _r.name)
    .select_from(_page)
    .outerjoin(
        search_names,
        and_(
            _n.id == _page.c.name_id, given(_n.account_id), _n.state == literal_column("'indexed'")
        ),
    )
    .outerjoin(
        repositories, and_(_r.id == _n.repository_id, given(_r.account_id), _r.deleted_at.is_(None))
    )
)
_unsettled = page(
    select(_n.id, _n.kind, _n.name, _n.state, _n.repository_id)
    .where(given(_n.account_id), IS_UNSETTLED)
    .order_by(_n.id)
).subquery("unsettled")
_LIST_UNSETTLED: Final = Statement(
    select(
        _unsettled.c.id, _unsettled.c.kind, _unsettled.c.name, _unsettled.c.state, _r.id, _r.name
    )
    .select_from(_unsettled)
    .outerjoin(
        repositories,
        and_(_r.id == _unsettled.c.repository_id, given(_r.account_id), _r.deleted_at.is_(None)),
    )
)
_TAKE: Final = paged(
    select(_n.id, _n.account_id, _n.kind, _n.name, _n.state)
    # All accounts: the bound makes it a range of the index of unsettled names.
    .where(_n.account_id > literal_column("''"), IS_UNSETTLED)
    .order_by(_n.account_id, _n.id)
    .with_for_update(skip_locked=True)
)
_terms = listed("terms").subquery("terms")
_ADD: Final = Statement(
    insert(search_terms).from_select(
        ["term", "name_id"], select(_terms.c.value, value("name_id", _s.name_id))
    )
)
_REMOVE_TERMS: Final = Statement(
    search_terms.delete().where(given(_s.name_id), _s.term.in_(listed("terms")))
)
_SETTLE: Final = Statement(
    search_names.update()
    .where(_n.id == bindparam("name_id"))
    .values(state=literal_column("'indexed'"))
)
_FORGET: Final = Statement(search_names.delete().where(_n.id == bindparam("name_id")))


class MatchPosition(NamedTuple):
    """The sort key of a match."""

    kind: str
    """``repository`` sorts before ``tag``."""
    characters: str
    """The characters from the match on, at most `TERM_LENGTH`, in lower case."""
    name_id: int


class IndexedName(NamedTuple):
    """An entry of the index; `repository_id` is None if no live repository has the name now."""

    position: MatchPosition
    name: str
    repository_id: str | None
    repository: str


def match(text: str, name: str) -> str | None:
    """Return the term under which a search for `text` finds a name; None if the name lacks `text`.

    Several terms of a name may begin with the text: the choice is always the same, so that each
    name is found once. `text` is in lower case.
    """
    lowered = name.lower()
    first = lowered.find(text)
    if first < 0:
        return None
    first += max(0, len(text) - TERM_LENGTH)
    return lowered[first : first + TERM_LENGTH]


def list_matches(
    tx: Connection, account_id: str, kind: str, text: str, after: MatchPosition | None, limit: int
) -> list[IndexedName]:
    """Return up to `limit` index entries after a position that may match the text, sorted.

    Of a long text only the last `TERM_LENGTH` characters are compared; the caller compares each
    name with the whole text (see `match`).
    """
    scope = _scope(account_id, kind)
    wanted = scope + text[-TERM_LENGTH:]
    rows = tx.rows(
        _LIST,
        account_id=account_id,
        after=wanted if after is None else scope + after.characters,
        after_id=0 if after is None else after.name_id,
        last=wanted + LAST_CHARACTER,
        limit=limit,
    )
    found = [
        IndexedName(
            MatchPosition(kind, row[0][len(scope) :], int(row[1])),
            row[2] or "",
            row[3],
            row[4] or "",
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: each.position)


def list_unsettled(
    tx: Connection, account_id: str, text: str, limit: int
) -> tuple[list[IndexedName], bool]:
    """Return live names that contain the text and whose terms are not written yet, sorted.

    At most `limit` unsettled names are read. The second value is True if no more are unsettled.
    """
    rows = tx.rows(_LIST_UNSETTLED, account_id=account_id, limit=limit + 1)
    found = [
        IndexedName(MatchPosition(row[1], characters, int(row[0])), row[2], row[4], row[5])
        for row in rows[:limit]
        if row[3] == "new" and row[4] is not None
        if (characters := match(text, row[2])) is not None
    ]
    return sorted(found, key=lambda each: each.position), len(rows) <= limit


def settle_batch(tx: Connection, limit: int) -> int:
    """Write the terms of new names, and delete the terms of deleted names.

    At most `limit` names are settled; return their number.
    """
    rows = tx.rows(_TAKE, limit=limit)
    for name_id, account_id, kind, name, state in rows:
        terms = text_list(_terms_of(account_id, kind, name))
        if state == "new":
            tx.execute(_ADD, name_id=name_id, terms=terms)
            tx.execute(_SETTLE, name_id=name_id)
        else:
            tx.execute(_REMOVE_TERMS, name_id=name_id, terms=terms)
            tx.execute(_FORGET, name_id=name_id)
    return len(rows)


def _scope(account_id: str, kind: str) -> str:
    return account_id[-_SCOPE_DIGITS:] + kind[0]


def _terms_of(account_id: str, kind: str, name: str) -> list[str]:
    scope, lowered = _scope(account_id, kind), name.lower()
    return sorted({scope + lowered[n : n + TERM_LENGTH] for n in range(len(lowered))})
