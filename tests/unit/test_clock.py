"""Time in microseconds, and ids that sort by it."""

from __future__ import annotations

import os
import time
import uuid

from cloudcore.clock import MICROSECONDS, system_clock, uuid7


def test_the_system_clock_counts_microseconds() -> None:
    before = time.time_ns() // 1000
    assert before <= system_clock() <= before + 60 * MICROSECONDS


def test_an_id_is_a_uuid_of_version_7_that_holds_its_time() -> None:
    made = uuid.UUID(uuid7(1_234_567_890_123_456))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_234_567_890_123


def test_an_id_is_of_now() -> None:
    before = system_clock() // 1000
    assert before <= uuid.UUID(uuid7()).int >> 80 <= system_clock() // 1000


def test_ids_sort_by_their_microsecond() -> None:
    """What one client makes in turn is listed in turn, though it makes several in a millisecond."""
    ids = [uuid7(1_234_567_890_122_900 + number) for number in range(2000)]
    assert ids == sorted(ids)


def test_ids_of_one_moment_differ() -> None:
    assert len({uuid7(0) for _ in range(1000)}) == 1000


def test_a_forked_process_makes_other_ids_than_its_parent() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "".join(uuid7(0) for _ in range(300)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as made:
        ids = made.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    of_child = {ids[at : at + 36] for at in range(0, len(ids), 36)}
    assert len(of_child) == 300
    assert not of_child & {uuid7(0) for _ in range(300)}
