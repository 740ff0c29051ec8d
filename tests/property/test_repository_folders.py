"""How many repositories there are, in all or under a prefix, against a count by hand."""

from __future__ import annotations

import itertools
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudcore.db.base import Connection, Database
from registry.metadata.repositories.deleted import list_deleted_repositories, undelete_repository
from registry.metadata.repositories.details import (
    NameRange,
    count_repository_details,
    list_repository_details,
    mark_deleted,
)
from registry.metadata.repositories.repository import (
    NewRepository,
    add_repository,
    lock_repository,
)
from registry.metadata.tags.deleted import SoftDeletion
from tests.databases import add_account, with_database
from tests.recount import check_counters, querying
from tests.soak import times

NAMES: Final = ("a", "a/b", "a/b/c", "a/bc", "ab", "ab/c", "b")
PREFIXES: Final = (None, "", "a", "a/", "a/b", "a/b/", "ab/", "b/", "/", "a//", "c/d/")

changes = st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=20)


def toggle(
    tx: Connection, account_id: str, name: str, number: int, *, is_live: bool, restores: bool
) -> None:
    """Delete a repository; or let there be one of this name: a new one, or one that was."""
    if is_live:
        (found,) = list_repository_details(tx, account_id, NameRange.of(name, None), "", 1)
        repository = lock_repository(tx, found.id)
        assert repository is not None
        mark_deleted(tx, repository, SoftDeletion("", None, 1, 2))
        return
    deleted = list_deleted_repositories(tx, account_id, 1, None, 100)
    again = [each for each in deleted if each.name == name]
    if restores and again:
        assert undelete_repository(tx, again[0], 1)
    else:
        new = NewRepository(name, None, {}, "mutable", [])
        assert add_repository(tx, f"{account_id[:30]}{number:06d}", account_id, new, 1)


def compare(tx: Connection, account_id: str, live: set[str]) -> None:
    for prefix in PREFIXES:
        names = NameRange.of(None, prefix)
        expected = sorted(name for name in live if name.startswith(prefix or ""))
        assert count_repository_details(tx, account_id, names) == len(expected), prefix
        found = [each.name for each in list_repository_details(tx, account_id, names, "", 100)]
        for after in expected[:-1]:
            rest = list_repository_details(tx, account_id, names, after, 100)
            assert [each.name for each in rest] == expected[expected.index(after) + 1 :]
        assert found == expected
    for name in NAMES:
        assert count_repository_details(tx, account_id, NameRange.of(name, None)) == (name in live)
        assert count_repository_details(tx, account_id, NameRange.of(name, "b")) == (
            name in live and name.startswith("b")
        )


@pytest.mark.parametrize(
    ("kind", "examples"),
    [("sqlite", 12), pytest.param("postgresql", 4, marks=pytest.mark.postgresql)],
)
def test_totals_are_those_of_a_count(
    request: pytest.FixtureRequest, kind: str, examples: int
) -> None:
    url = request.getfixturevalue(f"{kind}_database")
    handles = (f"account-{number}" for number in itertools.count())

    @settings(max_examples=times(examples), deadline=None, suppress_health_check=list(HealthCheck))
    @given(toggled=changes)
    def check(toggled: list[tuple[str, bool]]) -> None:
        handle = next(handles)

        async def scenario(database: Database) -> None:
            account_id = await database.write(add_account, handle)
            live: set[str] = set()
            for number, (name, restores) in enumerate(toggled):
                await database.write(
                    toggle, account_id, name, number, is_live=name in live, restores=restores
                )
                live ^= {name}
            await database.read(compare, account_id, live)

        with_database(url, scenario)
        with querying(url) as query:
            check_counters(query, handle)

    check()
