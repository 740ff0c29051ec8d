"""Ids in order, against a set of them."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from registry.services.tags.prefix_index import SortedIds

NUMBERS = st.integers(0, 40).flatmap(
    # A few near each other, so that the same come again; and more than a block holds.
    lambda start: st.lists(st.integers(start, start + 900), max_size=600, unique=True)
)
NEWEST: Final = "g"


def _id(number: int) -> str:
    return f"01890000-0000-7000-8000-{number:012x}"


@given(
    begun=NUMBERS,
    steps=st.lists(st.dictionaries(st.integers(0, 950), st.booleans(), max_size=60), max_size=6),
    marker=st.integers(0, 950),
    limit=st.integers(1, 700),
)
def test_changed_copies_are_what_a_set_is(
    begun: list[int], steps: list[dict[int, bool]], marker: int, limit: int
) -> None:
    ids, wanted = SortedIds.of(_id(number) for number in begun), set(begun)
    for step in [{}, *steps]:
        was = ids, sorted(wanted, reverse=True)
        ids = ids.changed({_id(number): is_in for number, is_in in step.items()})
        wanted = wanted - step.keys() | {number for number, is_in in step.items() if is_in}
        assert len(ids) == len(wanted)
        older = sorted((number for number in wanted if number < marker), reverse=True)
        assert ids.before(_id(marker), limit) == [_id(number) for number in older[:limit]]
        copied, before = was
        assert copied.before(NEWEST, 2000) == [_id(number) for number in before]


def test_an_id_given_twice_is_there_once() -> None:
    assert len(SortedIds.of([_id(1), _id(0), _id(1)])) == 2
    assert SortedIds().before(NEWEST, 5) == []
