"""The search for a part of a name, against a plain filter of all names."""

from __future__ import annotations

import itertools
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from registry.metadata.repositories.repository import NewRepository, add_repository
from registry.metadata.repositories.search_index import MatchPosition, settle_batch
from registry.metadata.tags.pointers import remove_tag, upsert_tag
from registry.services.repositories.search import search_names
from tests.databases import add_account, with_database
from tests.recount import check_search_index, querying
from tests.soak import times

REPOSITORIES: Final = ("ab", "a-b/abab", "web.front")

names = st.text("aAb1.-", min_size=1, max_size=20)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("tag"), st.integers(0, 2), names),
        st.tuples(st.just("untag"), st.integers(0, 2), names),
        st.tuples(st.just("settle"), st.integers(1, 9), st.just("")),
        st.tuples(st.just("search"), st.integers(1, 4), names),
    ),
    max_size=40,
)

_BODY: Final = Statement(
    text("INSERT INTO manifest_bodies (account_id, digest, body) VALUES (:account_id, 'd', 'x')")
)


def make_manifest(tx: Connection, account_id: str, repository_id: str) -> None:
    """Insert a manifest whose id is the repository's."""
    tx.execute(
        Statement(
            text(
                "INSERT INTO manifests (id, repository_id, account_id, digest, media_type,"
                " is_index, manifest_size_bytes, size_bytes, annotations, pushed_at)"
                " VALUES (:r, :r, :a, 'd', 'm', false, 1, 0, '{}', 0)"
            )
        ),
        r=repository_id,
        a=account_id,
    )


def search_all(tx: Connection, account_id: str, wanted: str, limit: int) -> list[tuple[str, str]]:
    """Return the repository and the name of each match on all pages."""
    found: list[tuple[MatchPosition, str, str]] = []
    after = None
    while True:
        page = search_names(tx, account_id, wanted, after, limit)
        found += [(each.position, each.repository, each.name) for each in page.names]
        after = page.continue_after
        if after is None:
            break
        assert len(page.names) == limit
    positions = [each[0] for each in found]
    assert positions == sorted(set(positions))
    return [each[1:] for each in found]


def play(tx: Connection, account_id: str, drawn: list[tuple[str, int, str]]) -> None:
    ids = [f"{account_id[:30]}{number:06d}" for number in range(len(REPOSITORIES))]
    for repository_id, name in zip(ids, REPOSITORIES, strict=True):
        add_repository(
            tx, repository_id, account_id, NewRepository(name, None, {}, "mutable", []), 1
        )
    tx.execute(_BODY, account_id=account_id)
    for repository_id in ids:
        make_manifest(tx, account_id, repository_id)
    tags: set[tuple[str, str]] = set()
    for what, number, name in [*drawn, ("search", 2, "a"), ("search", 3, "b1")]:
        if what == "tag":
            upsert_tag(tx, ids[number], name, ids[number], "d", 1)
            tags.add((REPOSITORIES[number], name))
        elif what == "untag":
            remove_tag(tx, ids[number], name)
            tags.discard((REPOSITORIES[number], name))
        elif what == "settle":
            settle_batch(tx, number)
        else:
            there = [*((each, each) for each in REPOSITORIES), *tags]
            expected = sorted(each for each in there if name.lower() in each[1].lower())
            assert sorted(search_all(tx, account_id, name, number)) == expected
    for number, name in {(REPOSITORIES.index(repository), name) for repository, name in tags}:
        remove_tag(tx, ids[number], name)


@pytest.mark.parametrize(
    ("kind", "examples"),
    [("sqlite", 20), pytest.param("postgresql", 6, marks=pytest.mark.postgresql)],
)
def test_a_search_finds_what_a_filter_of_all_names_finds(
    request: pytest.FixtureRequest, kind: str, examples: int
) -> None:
    url = request.getfixturevalue(f"{kind}_database")
    handles = (f"account-{number}" for number in itertools.count())

    @settings(max_examples=times(examples), deadline=None, suppress_health_check=list(HealthCheck))
    @given(drawn=changes)
    def check(drawn: list[tuple[str, int, str]]) -> None:
        handle = next(handles)

        async def scenario(database: Database) -> None:
            account_id = await database.write(add_account, handle)
            await database.write(play, account_id, drawn)
            while await database.write(settle_batch, 50):
                pass

        with_database(url, scenario)
        with querying(url) as query:
            check_search_index(query)

    check()
