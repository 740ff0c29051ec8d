"""Database servers when who drives them is killed: none is lost or doubled, nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.program_world import Died
from tests.server_world import ServerMachine, server_machine
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
PLACES: Final = {
    "create": ("after launch", "after groups", "before settle", "after settle"),
    "start": ("before launch", "after launch"),
    "stop": ("before ask", "after ask"),
    "remove": ("after groups", "before files", "after files"),
}
ALL_PLACES: Final = [(act, place) for act, places in PLACES.items() for place in places]
ROW: Final = "SELECT a FROM kept"


@pytest.fixture(scope="module")
def machine() -> Iterator[ServerMachine]:
    with server_machine() as made:
        yield made


@pytest.fixture(scope="module")
def template(machine: ServerMachine) -> Path:
    """Give the data of a server that has been used and stopped."""
    spec = machine.spec()
    with machine.driving() as driving:
        machine.made(driving, spec)
        with machine.owner(spec) as session:
            session.execute("CREATE TABLE kept AS SELECT 5 AS a")
        driving("stop", spec["id"])
        copied = machine.top / "template"
        (machine.folder(spec["id"]) / "data").rename(copied)
        driving("remove", spec["id"], True)
    return copied


def put(machine: ServerMachine, template: Path) -> dict[str, Any]:
    """Return a server that has data and does not run."""
    spec = machine.spec()
    with machine.driving() as driving:
        machine.put(driving, spec, template)
    return spec


@pytest.mark.parametrize(("act", "place"), ALL_PLACES)
def test_whoever_drives_is_killed_at_a_step_and_the_next_finishes_it(
    machine: ServerMachine, template: Path, act: str, place: str
) -> None:
    spec = machine.spec() if act == "create" else put(machine, template)
    arguments: dict[str, list[object]] = {"stop": [spec["id"]], "remove": [spec["id"], True]}
    given = arguments.get(act, [spec])
    with machine.driving() as driving:
        if act in {"stop", "remove"}:
            driving("start", spec)
    with machine.driving(place) as dying, pytest.raises(Died):
        dying(act, *given)
    with machine.driving() as driving:
        driving(act, *given)
        seen = driving("seen")
        if act == "create":
            assert seen[spec["id"]]["status"] == "stopped"
            assert not (machine.folder(spec["id"]) / "making").exists()
            assert (machine.folder(spec["id"]) / "data/PG_VERSION").exists()
        elif act == "start":
            assert seen[spec["id"]]["status"] == "running"
            driving("set_password", spec, "admin", "of-the-owner-1")
            with machine.owner(spec) as session:
                assert session.execute(ROW).fetchone() == (5,)
        elif act == "stop":
            assert seen[spec["id"]]["status"] == "stopped"
            assert machine.processes(spec["id"]) == set()
        else:
            assert spec["id"] not in seen
        driving("remove", spec["id"], True)
        driving("remove", spec["id"], True)
    left = machine.left()
    assert (left.processes, left.groups, left.files) == (frozenset(), frozenset(), frozenset())


def test_a_shim_that_is_killed_takes_its_server_along(
    machine: ServerMachine, template: Path
) -> None:
    """Also if the service is killed with it: nothing runs on that nobody knows."""
    spec = put(machine, template)
    with machine.driving() as driving:
        driving("start", spec)
        driving.process.kill()
        os.kill(machine.shim(spec["id"]), signal.SIGKILL)
    until(lambda: not machine.processes(spec["id"]))
    until(lambda: not machine.left().namespaces)
    with machine.driving() as driving:
        assert driving("seen")[spec["id"]]["status"] == "stopped"
        driving("remove", spec["id"], True)
