"""Instances when who drives them, or their shim, is killed: none is lost or doubled."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.instance_world import Machine, machine
from tests.program_world import Died
from tests.waiting import until

ENDLESS = "trap 'exit 3' TERM; echo begun; while :; do sleep 1 & wait; done"
PLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "runc": {
        "start": ("before write", "after write", "after launch", "after ask"),
        "go": ("before ask", "after ask"),
        "stop": ("before ask", "after ask", "before groups", "after groups"),
        "remove": ("before signal", "after signal", "after groups", "after files"),
    },
    # The code of the steps is the same; these leave processes and groups of bubblewrap's.
    "bubblewrap": {
        "start": ("after launch",),
        "go": ("after ask",),
        "stop": ("before groups", "after groups"),
        "remove": ("after signal", "after groups"),
    },
}


@pytest.fixture(scope="module", params=["runc", "bubblewrap"])
def on(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as made:
        yield made


@pytest.mark.parametrize("act", ["start", "go", "stop", "remove"])
def test_whoever_drives_is_killed_at_a_step_and_the_next_finishes_it(on: Machine, act: str) -> None:
    for place in PLACES[on.runtime][act]:
        kill_and_finish(on, act, place)


def kill_and_finish(on: Machine, act: str, place: str) -> None:
    given = on.spec(ENDLESS)
    instance_id = str(given["id"])
    arguments: dict[str, list[object]] = {"start": [given], "stop": [instance_id, 10.0]}
    given_to_it = arguments.get(act, [instance_id])
    with on.driving() as driving:
        if act != "start":
            driving("start", given)
        if act in {"stop", "remove"}:
            driving("go", instance_id)
            driving.says(instance_id, "begun")
    with on.driving(place) as dying, pytest.raises(Died):
        dying(act, *given_to_it)
    with on.driving() as driving:
        driving(act, *given_to_it)
        seen = driving("seen")
        if act in {"start", "go"}:
            assert seen[instance_id]["status"] == {"start": "starting", "go": "running"}[act], place
            driving("go", instance_id)
            driving.says(instance_id, "begun")
            assert driving("logs", instance_id, 1000).count("begun") == 1, place
            # The shell and its sleep, and of bubblewrap its monitor.
            until(lambda: len(on.processes(instance_id)) == (2 if on.runtime == "runc" else 3))
        elif act == "stop":
            found = seen[instance_id]
            assert (found["status"], found["exit_code"]) == ("stopped", 3), place
            assert on.processes(instance_id) == set()
        else:
            assert instance_id not in seen
        driving("remove", instance_id)
        driving("remove", instance_id)
    left = on.left()
    assert (left.processes, left.files, left.groups) == (frozenset(),) * 3, place


def test_the_next_service_adopts_what_runs_and_starts_nothing_twice(on: Machine) -> None:
    given = on.spec(ENDLESS)
    with on.driving() as driving:
        instance_id = driving.run(given)
        driving.says(instance_id, "begun")
        first = on.shim(instance_id)
        os.kill(driving.process.pid, signal.SIGKILL)
    with on.driving() as driving:
        assert driving.seen(instance_id)["status"] == "running"
        driving("start", given)
        driving("go", instance_id)
        assert on.shim(instance_id) == first
        assert driving("logs", instance_id, 1000) == "begun\n"
        driving("stop", instance_id, 10.0)
        assert driving.seen(instance_id)["exit_code"] == 3
        driving("remove", instance_id)


@pytest.mark.parametrize("which", ["shim", "inner_shim"])
def test_all_of_an_instance_ends_with_its_shim_and_it_can_begin_anew(
    on: Machine, which: str
) -> None:
    given = on.spec("echo begun; sleep 600 & setsid sleep 600 & sleep 600")
    with on.driving() as driving:
        instance_id = driving.run(given)
        driving.says(instance_id, "begun")
        until(lambda: len(on.processes(instance_id)) >= 3)
        os.kill(getattr(on, which)(instance_id), signal.SIGKILL)
        until(lambda: on.left().processes == frozenset())
        until(lambda: on.processes(instance_id) == set())
        assert driving.ended(instance_id)["exit_code"] is None
        driving.run(given)
        assert driving.seen(instance_id)["status"] == "running"
        driving("remove", instance_id)
        assert driving("seen") == {}


def test_an_instance_of_another_boot_is_not_taken_for_one_that_runs(on: Machine) -> None:
    with on.driving() as driving:
        instance_id = driving.run(on.spec("sleep 600"))
        shim = on.shim(instance_id)
        identity = on.folder(instance_id) / "process"
        kept = identity.read_text()
        identity.write_text(" ".join([*kept.split()[:2], "another-boot"]))
        assert driving.seen(instance_id)["status"] == "stopped"
        identity.write_text(kept)
        assert driving.seen(instance_id)["status"] == "running"
        assert on.shim(instance_id) == shim
        driving("remove", instance_id)


@pytest.mark.parametrize("lost", ["process", ""], ids=["who keeps it", "all of it"])
def test_an_instance_whose_folder_was_lost_is_ended_all_the_same(on: Machine, lost: str) -> None:
    with on.driving() as driving:
        instance_id = driving.run(on.spec(ENDLESS))
        driving.says(instance_id, "begun")
        if lost:
            (on.folder(instance_id) / lost).unlink()
        else:
            shutil.rmtree(on.folder(instance_id))
        driving("remove", instance_id)
        assert on.processes(instance_id) == set()
    assert on.left().groups == frozenset()
