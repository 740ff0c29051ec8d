"""The pause between the portions of a run: as long as others need, and never longer than told."""

from __future__ import annotations

import asyncio
import time

import pytest

from registry.services.lifecycle.runs import Plans


@pytest.mark.parametrize(("took", "rested"), [(0.1, 0.3), (60.0, 5.0)])
async def test_others_have_the_database_for_longer_than_a_portion_had_it(
    monkeypatch: pytest.MonkeyPatch, took: float, rested: float
) -> None:
    now = 0.0
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    plans = Plans()
    await plans.rest("plan")
    assert pauses == []  # nothing was deleted yet
    plans.hand_over("plan")
    now = took
    await plans.rest("another")
    assert pauses == []
    await plans.rest("plan")
    await plans.rest("plan")
    assert pauses == [pytest.approx(rested)]
