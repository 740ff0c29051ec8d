"""The arithmetic of a fixed window (part 8, "Rate limiting")."""

from __future__ import annotations

import pytest

from cloudcore.clock import MICROSECONDS
from cloudcore.web.ratelimit import Budget, RateLimitStatus, Window, advance, status_of

BUDGET = Budget(limit=2, window_seconds=60)


def play(*seconds: float) -> list[RateLimitStatus]:
    """Return where requests at these moments leave their subject."""
    window: Window | None = None
    told = []
    for second in seconds:
        now = int(second * MICROSECONDS)
        window = advance(window, BUDGET, now)
        told.append(status_of(window, BUDGET, now))
    return told


def test_a_window_takes_its_budget_and_no_more() -> None:
    told = play(0, 10, 20)
    assert [(one.remaining, one.reset, one.is_refused) for one in told] == [
        (1, 60, False),
        (0, 50, False),
        (0, 40, True),
    ]


def test_the_window_opens_again_at_its_end_and_not_before() -> None:
    assert play(0, 0, 60)[-1] == RateLimitStatus(2, 1, 60, is_refused=False)
    assert play(0, 0, 59.999)[-1].is_refused


def test_a_sooner_retry_begins_the_window_anew() -> None:
    told = play(0, 0, 50, 55, 114.9, 174.9)
    assert [one.reset for one in told] == [60, 60, 10, 60, 60, 60]
    assert [one.is_refused for one in told] == [False, False, True, True, True, False]


def test_who_waits_as_told_is_let_in() -> None:
    told = play(0, 0, 50)
    assert not play(0, 0, 50, 50 + told[-1].reset)[-1].is_refused


@pytest.mark.parametrize("second", [59.2, 59.9999])
def test_the_wait_is_never_zero(second: float) -> None:
    assert play(0, 0, second)[-1].reset == 1


def test_a_raised_budget_counts_at_once() -> None:
    exhausted = advance(Window(60 * MICROSECONDS, 2, 1), Budget(5, 60), 0)
    assert not status_of(exhausted, Budget(5, 60), 0).is_refused
