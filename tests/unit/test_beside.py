"""The list of what is done outside the event loop is complete, and each part is pressed."""

from __future__ import annotations

from pathlib import Path

import pytest

import registry
from benchmarks.beside_loads import LOADS, SMALL
from benchmarks.beside_places import ON_THE_LOOP, PLACES, places

SOURCES = Path(next(iter(registry.__path__))).parent


def test_each_use_of_a_thread_or_a_child_process_is_on_the_list() -> None:
    found = places(SOURCES)
    assert dict(found) == {name: place.uses for name, place in PLACES.items()}, (
        "what leaves the event loop must have a load in benchmarks.beside, or a reason"
    )


def test_each_place_is_pressed_by_a_load_that_there_is_or_says_why_not() -> None:
    for name, place in PLACES.items():
        assert bool(place.loads) is not bool(place.why), name
    pressed = {load for place in PLACES.values() for load in place.loads}
    assert pressed | ON_THE_LOOP == LOADS.keys() - {SMALL}
    assert not pressed & ON_THE_LOOP


@pytest.mark.parametrize(
    ("line", "uses"),
    [
        ("asyncio.to_thread(call)", 1),
        ("asyncio.get_running_loop().run_in_executor(None, call)", 1),
        ("loop.getaddrinfo(host, 1)", 1),
        ("subprocess.run([])", 1),
        ("pathlib.run([])", 0),
        ("POOL.run(account, call)", 1),
        ("threading.Thread(target=call).start()", 1),
        ("x: Thread | None = None", 0),
    ],
)
def test_what_is_found(tmp_path: Path, line: str, uses: int) -> None:
    (tmp_path / "pool.py").write_text('POOL: Final = FairThread("a")\n')
    (tmp_path / "user.py").write_text(f"class A:\n    async def use(self):\n        {line}\n")
    found = places(tmp_path)
    assert found["pool.py:"] == 1
    assert found["user.py:use"] == uses
