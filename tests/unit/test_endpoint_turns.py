"""Slow endpoints leave slots to others."""

from __future__ import annotations

import pytest

from cloudcore.jobs.kinds import OUTBOUND_SLOTS
from cloudcore.notifications.delivering import (
    LONGEST_SECONDS,
    MOST_OF_ACCOUNT,
    MOST_OF_ORIGIN,
    MOST_SLOW,
    REMEMBERED_TURNS,
    SLOW_SECONDS,
    EndpointTurns,
    Turn,
)


class Clock:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> EndpointTurns:
    return EndpointTurns(seconds=clock)


def _slow(turns: EndpointTurns, count: int, origin: str = "", account: str = "one") -> list[Turn]:
    """Let so many turns be slow and go on, at one origin or one each."""
    names = [f"{origin or account}{number}" for number in range(count)]
    begun = [turns.begin(each, origin or each, account) for each in names]
    held = [each for each in begun if each is not None]
    assert len(held) == count
    assert all(turns.may_go_on(each) for each in held)
    return held


def test_an_endpoint_that_is_not_known_as_slow_may_always_be_asked(turns: EndpointTurns) -> None:
    _slow(turns, MOST_OF_ORIGIN, "host")
    _slow(turns, MOST_OF_ACCOUNT - MOST_OF_ORIGIN)
    _slow(turns, MOST_SLOW - MOST_OF_ACCOUNT, account="two")
    assert turns.begin("fast", "host", "one") is not None


@pytest.mark.parametrize(
    ("count", "origin", "account"), [(MOST_OF_ORIGIN, "host", "two"), (MOST_OF_ACCOUNT, "", "one")]
)
def test_a_slow_turn_gives_up_if_its_origin_or_its_account_has_enough(
    turns: EndpointTurns, clock: Clock, count: int, origin: str, account: str
) -> None:
    late = turns.begin("late", origin, account)
    assert late is not None
    held = _slow(turns, count, origin)
    assert not turns.may_go_on(late)
    clock.now = SLOW_SECONDS
    turns.end(late)
    assert turns.begin("late", origin, account) is None  # known as slow by now
    turns.end(held[0])
    assert turns.begin("late", origin, account) is not None


def test_all_accounts_together_leave_slots(turns: EndpointTurns) -> None:
    for number in range(MOST_SLOW // MOST_OF_ACCOUNT):
        _slow(turns, MOST_OF_ACCOUNT, account=str(number))
    late = turns.begin("slow", "host", "another")
    assert late is not None
    assert not turns.may_go_on(late)


def test_an_endpoint_is_known_as_slow_until_it_answers_fast_or_for_longer_each_time(
    turns: EndpointTurns, clock: Clock
) -> None:
    held = _slow(turns, MOST_OF_ORIGIN, "host")
    known = held[0].endpoint
    assert turns.begin(known, "host", "one") is None
    turns.end(held[1])
    again = turns.begin(known, "host", "one")
    assert again is not None
    turns.end(again)  # at once
    assert turns.begin(known, "host", "one") is not None
    known = held[2].endpoint
    _slow(turns, 1, "host")
    assert turns.begin(known, "host", "one") is None
    clock.now = SLOW_SECONDS * REMEMBERED_TURNS
    again = turns.begin(known, "host", "one")
    assert again is not None  # for another try
    assert not turns.may_go_on(again)
    clock.now *= 2
    assert turns.begin(known, "host", "one") is None  # now it is known for longer
    for _ in range(10):
        clock.now += LONGEST_SECONDS
        again = turns.begin(known, "host", "one")
        assert again is not None
        assert not turns.may_go_on(again)


def test_those_without_room_look_again_one_after_the_other(
    turns: EndpointTurns, clock: Clock
) -> None:
    pauses = [turns.pause() for _ in range(41)]
    assert pauses[0] == SLOW_SECONDS
    assert pauses[20] == pytest.approx(SLOW_SECONDS + 1)
    assert pauses[40] == pytest.approx(SLOW_SECONDS + 2)
    clock.now = 100
    assert turns.pause() == SLOW_SECONDS


def test_what_all_accounts_share_has_few_turns_from_the_start(turns: EndpointTurns) -> None:
    _slow(turns, MOST_OF_ACCOUNT)
    held = [turns.begin(str(number), "mail", None) for number in range(MOST_OF_ORIGIN)]
    assert None not in held
    assert turns.begin("another", "mail", None) is None
    assert held[0] is not None
    turns.end(held[0])
    assert turns.begin("another", "mail", None) is not None


def test_a_process_has_slots_that_slow_turns_never_take() -> None:
    assert OUTBOUND_SLOTS - MOST_SLOW - MOST_OF_ORIGIN >= 12  # those of mail besides
