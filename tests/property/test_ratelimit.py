"""A fixed window under any sequence of requests: who waits is let in, who hammers is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloudcore.clock import MICROSECONDS
from cloudcore.web.rate_limits import Budget, Window, advance, status_of

BUDGETS = st.builds(Budget, limit=st.integers(1, 5), window_seconds=st.integers(1, 90))
PAUSES = st.lists(st.integers(0, 100 * MICROSECONDS), max_size=60)


@given(BUDGETS, PAUSES)
def test_what_is_told_is_true(budget: Budget, pauses: list[int]) -> None:
    window: Window | None = None
    now = admitted = 0
    for pause in pauses:
        now += pause
        if window is None or window.ends_at <= now:
            admitted = 0
        window = advance(window, budget, now)
        told = status_of(window, budget, now)
        admitted += not told.is_refused
        assert admitted <= budget.limit
        assert told.remaining == budget.limit - admitted
        assert 1 <= told.reset <= budget.window_seconds
        if told.is_refused:
            assert told.remaining == 0
            waited = advance(window, budget, now + told.reset * MICROSECONDS)
            assert not status_of(waited, budget, now + told.reset * MICROSECONDS).is_refused


@given(BUDGETS, st.lists(st.floats(0, 0.99), max_size=60))
def test_who_hammers_never_gets_in(budget: Budget, parts: list[float]) -> None:
    window: Window | None = None
    for _ in range(budget.limit + 1):
        window = advance(window, budget, 0)
    assert window is not None
    now = 0
    for part in parts:
        told = status_of(window, budget, now)
        assert told.is_refused
        now += int(part * (window.ends_at - now))
        window = advance(window, budget, now)
    assert window.admitted == budget.limit


def test_a_raised_budget_counts_at_once() -> None:
    exhausted = advance(Window(60 * MICROSECONDS, 2, 1), Budget(5, 60), 0)
    assert not status_of(exhausted, Budget(5, 60), 0).is_refused
