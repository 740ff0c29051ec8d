"""The life of an instance: its end, its output, its ports, its metadata and its shim."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudcore.compute.images import MOST_LAYERS
from cloudcore.nodes.shim import OUTPUT_BYTES_A_SECOND
from tests.instance_world import Machine, get, machine
from tests.program_world import PYTHON, Driving, Refused
from tests.waiting import until

MOST_RESIDENT_KIB = 24_000
"""Of a shim, with what it shares with the others: 8 MiB are its own."""


@pytest.fixture(scope="module", params=["runc", "bubblewrap"])
def on(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with machine(request.param) as made:
        yield made


@pytest.fixture
def driving(on: Machine) -> Iterator[Driving]:
    with on.driving() as made:
        yield made
        for instance_id in made("seen"):
            made("remove", instance_id)


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 7", 7), ("sh -c 'kill -9 $$'; exit $?", 137)]
)
def test_the_exit_code_of_its_program_is_seen(
    on: Machine, driving: Driving, command: str, code: int
) -> None:
    instance_id = driving.run(on.spec(command))
    seen = driving.ended(instance_id)
    assert (seen["exit_code"], seen["problem"]) == (code, "")
    assert seen["started_at"] > 0
    assert on.left().processes == frozenset()


def test_a_program_that_is_not_there_is_told(on: Machine, driving: Driving) -> None:
    instance_id = driving.run(on.spec("/bin/no-such-program", "it"))
    seen = driving.ended(instance_id)
    assert seen["exit_code"] != 0
    assert "no-such-program" in seen["problem"] + driving("logs", instance_id, 1000)
    assert "level=" not in seen["problem"]


def test_an_instance_without_a_command_is_refused(on: Machine, driving: Driving) -> None:
    given = on.spec("true") | {"command": [], "cmd": []}
    with pytest.raises(Refused, match="give the pool a command"):
        driving("start", given)
    driving("remove", given["id"])


def test_nothing_runs_before_it_may(on: Machine, driving: Driving) -> None:
    given = on.spec("echo begun")
    netns = driving("start", given)
    assert (netns is None) == (on.runtime == "bubblewrap")
    if netns is not None:
        assert Path(netns).stat().st_ino != Path("/proc/self/ns/net").stat().st_ino
        said = subprocess.run(
            ("nsenter", f"--net={netns}", "ip", "-brief", "address"),
            capture_output=True,
            check=True,
        )
        assert b"metadata0" in said.stdout
    assert driving("start", given) == netns
    assert driving.seen(str(given["id"]))["status"] == "starting"
    assert driving("logs", given["id"], 100) == ""
    driving("stop", given["id"], 10.0)
    assert driving.seen(str(given["id"])) == {
        "status": "stopped",
        "exit_code": None,
        "started_at": None,
        "problem": "",
    }
    with pytest.raises(Refused, match="no instance"):
        driving("go", "0191b2f4-0000-7000-8000-000000000000")


def test_a_stop_asks_first_and_kills_all_after_its_grace(on: Machine, driving: Driving) -> None:
    asked = "trap 'echo asked; exit 4' TERM; echo begun; while :; do sleep 1 & wait; done"
    deaf = "trap '' TERM; echo begun; setsid sleep 600 & sleep 600 & while :; do wait; done"
    for command, grace, code in ((asked, 20.0, 4), (deaf, 0.1, 137)):
        instance_id = driving.run(on.spec(command))
        driving.says(instance_id, "begun")
        driving("stop", instance_id, grace)
        assert driving.seen(instance_id)["exit_code"] == code
        assert on.processes(instance_id) == set()
        assert on.left().processes == frozenset()
        driving("stop", instance_id, grace)


def test_one_that_has_ended_begins_anew_on_an_empty_disk_after_its_output(
    on: Machine, driving: Driving
) -> None:
    given = on.spec("echo run; test -e /left && echo LEFT; touch /left; exit 5")
    for _ in range(2):
        driving.run(given)
        assert driving.ended(str(given["id"]))["exit_code"] == 5
    assert driving("logs", given["id"], 1000) == "run\nrun\n"


def test_the_last_ten_megabytes_of_output_are_kept_in_two_files(
    on: Machine, driving: Driving
) -> None:
    lines = "yes 0123456789012345678 | head -n 650000; echo error >&2; echo last"
    instance_id = driving.run(on.spec(lines))
    assert driving.ended(instance_id)["exit_code"] == 0
    sizes = [each.stat().st_size for each in sorted(on.folder(instance_id).glob("output*"))]
    assert sizes == [13_000_011 - 10_000_000, 5_000_000]
    said = driving("logs", instance_id, 50_000_000)
    assert len(said) == sum(sizes)
    assert said.endswith("0123456789012345678\nerror\nlast\n")
    assert driving("logs", instance_id, 5) == "last\n"
    assert driving("logs", instance_id, 0) == ""


def test_who_writes_without_end_waits_and_does_not_keep_its_shim_busy(
    on: Machine, driving: Driving
) -> None:
    """What the shim does counts in no bound of the instance."""
    wrote = 2_000_000
    instance_id = driving.run(on.spec(f"head -c {wrote} /dev/zero; echo done; sleep 60"))
    driving.says(instance_id, "done")
    seconds = time.time() - driving.seen(instance_id)["started_at"] / 1e6
    assert seconds > (wrote - 3 * 65_536) / OUTPUT_BYTES_A_SECOND


def test_ports_are_reached_by_sockets_in_its_folder(on: Machine, driving: Driving) -> None:
    files = on.top / "files"
    files.mkdir(exist_ok=True)
    large = bytes(range(256)) * 20_000
    (files / "large").write_bytes(large)
    (files / "small").write_bytes(b"small")
    given = on.spec(
        "nc -ll -p 8080 -e cat & exec httpd -f -p 80 -h /",
        layers=[str(on.layer), str(files)],
        ports=[80, 8080, 9090],
    )
    ports = on.folder(driving.run(given)) / "ports"

    def ask(path: str) -> bytes:
        return get(ports / "80", f"GET {path} HTTP/1.0\r\n\r\n".encode()).partition(b"\r\n\r\n")[2]

    until(lambda: ask("/small") == b"small")
    assert ask("/large") == large
    with ThreadPoolExecutor(20) as threads:
        assert set(threads.map(lambda _: ask("/small"), range(100))) == {b"small"}
    until(lambda: _echoes(ports / "8080"))
    assert get(ports / "9090", b"") == b"", "nobody listens there"
    assert not (ports / "81").exists()


def _echoes(port: Path) -> bool:
    return get(port, b"echo" * 10, ends=True) == b"echo" * 10


def test_each_instance_is_told_of_itself_alone_and_port_80_is_its_own(
    on: Machine, driving: Driving
) -> None:
    ask = (
        "httpd -p 0.0.0.0:80 -h /bin || echo NO PORT;"
        " token=$(printf 'PUT /latest/api/token HTTP/1.1\\r\\nHost: 169.254.169.254\\r\\n"
        "X-Entrepot-Metadata-Token-TTL-Seconds: 60\\r\\nConnection: close\\r\\n\\r\\n'"
        " | nc 169.254.169.254 80 | tail -n 1);"
        " wget -q -O - http://169.254.169.254/latest/entrepot/instance || echo without: refused;"
        ' wget -q -O - --header "X-Entrepot-Metadata-Token: $token"'
        " http://169.254.169.254/latest/entrepot/instance"
    )
    given = [on.spec(ask) for _ in range(2)]
    for each in given:
        driving("start", each)
        folder = on.folder(str(each["id"]))
        (folder / "instance.json").write_text(json.dumps({"id": each["id"]}))
        shutil.chown(folder / "instance.json", on.uid)
        driving("go", each["id"])
    for each in given:
        assert driving.ended(str(each["id"]))["exit_code"] == 0
        said = driving("logs", each["id"], 10_000)
        assert "NO PORT" not in said
        refused, _, told = said.partition("without: refused\n")
        assert "401" in refused
        assert json.loads(told) == {"id": each["id"]}


def test_an_image_may_have_as_many_layers_as_images_have(on: Machine, driving: Driving) -> None:
    layers = [on.layer]
    for number in range(1, MOST_LAYERS):
        layers.append(on.top / f"of-many/{number}")
        layers[-1].mkdir(parents=True, exist_ok=True)
        (layers[-1] / "highest").write_text(str(number))
    given = on.spec("cat /highest", layers=[str(layer) for layer in layers])
    instance_id = driving.run(given)
    assert driving.ended(instance_id)["exit_code"] == 0
    assert driving("logs", instance_id, 100) == str(MOST_LAYERS - 1)


def test_an_instance_that_cannot_be_made_says_why_and_leaves_nothing(
    on: Machine, driving: Driving
) -> None:
    given = on.spec("true", layers=[str(on.layer), str(on.top / "gone")])
    with pytest.raises(Refused, match="overlay: No such file"):
        driving("start", given)
    assert driving.seen(str(given["id"]))["status"] == "stopped"
    left = on.left()
    assert (left.processes, left.loops, left.mounts) == (frozenset(), frozenset(), frozenset())
    driving("remove", given["id"])
    if on.runtime == "runc":  # whose disks take their place at once
        with pytest.raises(Refused, match=r"No space left|File too large"):
            driving("start", on.spec("true", disk_mb=50_000_000))


def test_a_shim_that_the_service_does_not_know_ends_at_once(on: Machine) -> None:
    folder = on.top / "unknown"
    folder.mkdir(exist_ok=True)
    (folder / "order.json").write_text("{}")
    (folder / "process").write_text("1 1 boot\n")
    begin = f"import sys; sys.path.append({str(on.top / 'lib')!r})"
    main = "from cloudcore.compute.shim.program import main; main()"
    ended = subprocess.run((PYTHON, "-I", "-S", "-c", f"{begin}; {main}"), cwd=folder, check=True)
    assert ended.returncode == 0
    assert {each.name for each in folder.iterdir()} == {"order.json", "process"}


def test_a_shim_is_small_and_sleeps_while_nothing_comes(on: Machine, driving: Driving) -> None:
    instance_id = driving.run(on.spec("echo begun; exec sleep 600"))
    driving.says(instance_id, "begun")
    shim = Path(f"/proc/{on.inner_shim(instance_id)}")
    until(lambda: (shim / "stat").read_text().rpartition(")")[2].split()[0] == "S")
    status = (shim / "status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) < MOST_RESIDENT_KIB
    assert int(status.split("Threads:")[1].split()[0]) == 1


def test_a_machine_that_can_is_not_refused(on: Machine, driving: Driving) -> None:
    driving("check")
    driving("check")
    assert driving("seen") == {}
    assert on.left().processes == frozenset()
    assert on.left().groups == frozenset()


def test_a_machine_that_cannot_is_refused_in_one_line(on: Machine, driving: Driving) -> None:
    with on.driving(env={"PATH": "/nowhere"}) as lacking, pytest.raises(Refused) as refused:
        lacking("check")
    package = {"runc": "runc", "bubblewrap": "bubblewrap"}[on.runtime]
    assert f"install the package {package}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_each_driver_says_who_may_use_it(on: Machine) -> None:
    other = {"runc": "bubblewrap", "bubblewrap": "runc"}[on.runtime]
    with on.driving(driver=other) as driving, pytest.raises(Refused) as refused:
        driving("check")
    assert f"set {on.runtime}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bubblewrap_without_a_control_group_refuses_to_start(on: Machine) -> None:
    with on.driving(is_given=False) as driving:
        if on.runtime == "runc":  # it makes its groups as root
            driving("check")
            return
        with pytest.raises(Refused) as refused:
            driving("check")
    assert "Delegate=yes" in str(refused.value)
    assert "\n" not in str(refused.value)
