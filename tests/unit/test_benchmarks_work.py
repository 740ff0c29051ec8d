"""The parts of the work counter that its verdict depends on."""

from __future__ import annotations

from pathlib import Path

from benchmarks.work.__main__ import ALLOWED_OF_LARGE, risen
from benchmarks.work.counted_server import Counters, Counts
from benchmarks.work.counting import Work
from benchmarks.work.system_calls import SystemCalls, sum_calls

TRACE = """\
101 recvfrom(12, ""..., 65536, 0, NULL, NULL) = 412
101 pread64(9, ""..., 4096, 0)          = 4096
102 fdatasync(7 <unfinished ...>
101 sendto(12, ""..., 900, 0, NULL, 0 <unfinished ...>
102 <... fdatasync resumed>)            = 0
101 <... sendto resumed>)               = 900
101 sendfile(12, 8, [0] => [1048576], 1048576) = 1048576
101 recvfrom(12, 0x7f, 65536, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)
102 +++ exited with 0 +++
"""


def test_calls_are_counted_once_and_only_copies_add_bytes() -> None:
    found = sum_calls(TRACE.splitlines(keepends=True))
    assert found == SystemCalls(calls=6, flushes=1, copied_bytes=412 + 4096 + 900)


def test_a_rise_beyond_chance_is_told_by_its_name() -> None:
    known = Work(5, 1, 2, 1, 100, 1, 10_000)
    assert risen("SQLite, push", known, known) == []
    by_chance = known._replace(steps=3, hops=2, calls=115, copied_bytes=11_500)
    assert risen("SQLite, push", known, by_chance) == []
    assert risen("SQLite, push", known, known._replace(statements=4, flushes=0)) == []
    found = known._replace(statements=6, tasks=2, calls=116, copied_bytes=11_501)
    assert risen("SQLite, push", known, found) == [
        "SQLite, push: 6 statements a request, 5 before",
        "SQLite, push: 2 tasks a request, 1 before",
        "SQLite, push: 116 calls a request, 100 before",
        "SQLite, push: 11501 copied bytes a request, 10000 before",
    ]
    small = Work(0, 0, 0, 0, 4, 0, 300)
    assert risen("a", small, small._replace(calls=6, copied_bytes=1324)) == []
    large = known._replace(steps=5, hops=4, calls=160, flushes=2)
    assert risen("a", known, large, ALLOWED_OF_LARGE) == []
    assert len(risen("a", known, large)) == 4


def test_counters_are_read_by_another_process_that_maps_them(tmp_path: Path) -> None:
    ours, theirs = Counters(tmp_path / "counters"), Counters(tmp_path / "counters")
    for name in ("statements", "hops", "hops"):
        ours.add(name)
    assert theirs.read() == Counts(statements=1, tasks=0, steps=0, hops=2)
