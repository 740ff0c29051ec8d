"""What a program in an instance can do, and what it cannot: real programs that try."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.instance_world import NOBODY, Machine, machine
from tests.program_driver import FIRST_INSTANCE_UID
from tests.program_world import Driving, groups_named
from tests.waiting import until

MIB = 1024 * 1024
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
PROGRAM = """
import ctypes, json, os, platform
numbers = {
    "x86_64": {"ptrace": 101, "mount": 165, "unshare": 272, "setns": 308, "keyctl": 250,
        "process_vm_readv": 310, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
        "init_module": 175, "reboot": 169, "perf_event_open": 298, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "pivot_root": 155, "swapon": 167, "kexec_load": 246,
        "clone3": 435, "fsopen": 430, "mount_setattr": 442},
    "aarch64": {"ptrace": 117, "mount": 40, "unshare": 97, "setns": 268, "keyctl": 219,
        "process_vm_readv": 270, "bpf": 280, "userfaultfd": 282, "io_uring_setup": 425,
        "init_module": 105, "reboot": 142, "perf_event_open": 241, "name_to_handle_at": 264,
        "open_by_handle_at": 265, "pivot_root": 41, "swapon": 224, "kexec_load": 104,
        "clone3": 435, "fsopen": 430, "mount_setattr": 442},
}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
def tried(*arguments):
    ctypes.set_errno(0)
    libc.syscall(*arguments)
    return ctypes.get_errno()
found = {name: tried(number, 0, 0, 0, 0, 0, 0) for name, number in numbers.items()}
found["socket of VSOCK"] = tried({"x86_64": 41, "aarch64": 198}[platform.machine()], 40, 1, 0)
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
found["clone with a namespace"] = tried(clone, 0x10000000 | 17, 0, 0, 0, 0)
print(json.dumps(found))
"""

TAKER = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
watchers = 0
while watchers < 4096 and libc.inotify_init() >= 0:
    watchers += 1
queues = 0
while queues < 4096 and libc.mq_open(b"/%d" % queues, 0o102, 0o600, None) >= 0:
    queues += 1
print(f"took {watchers} {queues}", flush=True)
time.sleep(600)
"""


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


def output(on: Machine, driving: Driving, *command: str, **changes: object) -> str:
    """Return what a program wrote until it ended, with success."""
    instance_id = driving.run(on.spec(*command, **changes))
    seen = driving.ended(instance_id)
    said = str(driving("logs", instance_id, 100_000))
    assert seen["exit_code"] == 0, (seen, said)
    return said


def test_a_program_has_namespaces_of_its_own_no_capabilities_and_a_filter(
    on: Machine, driving: Driving
) -> None:
    said = output(
        on,
        driving,
        "cat /proc/self/status; hostname; id -u; ls -l /proc/self/ns; pwd; echo $IMAGE $GIVEN $$",
        environment={"GIVEN": "a b"},
        cwd="/srv/it",
        user=(1000, 1000),
    )
    status = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    sets = {status[f"Cap{which}"] for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    assert sets == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert "\n1000\n" in said
    assert "\n/srv/it\n" in said
    assert said.endswith("1 a b 1\n"), "it is the first process that it sees"
    for name in NAMESPACES:
        assert f"{name}:[" in said
        assert str(Path(f"/proc/self/ns/{name}").readlink()) not in said


def test_calls_that_reach_beyond_an_instance_are_not_there(on: Machine, driving: Driving) -> None:
    script = on.top / "calls"
    script.mkdir(exist_ok=True)
    (script / "probe.py").write_text(PROGRAM)
    layers = ["/usr", str(script)]
    home = {"PYTHONHOME": "/"}
    said = output(on, driving, "/bin/python3", "/probe.py", layers=layers, environment=home)
    found = json.loads(said)
    assert len(found) == 22
    assert found == dict.fromkeys(found, errno.ENOSYS)


def test_nothing_of_the_machine_can_be_written_mounted_or_made(
    on: Machine, driving: Driving
) -> None:
    before = Path("/proc/sys/kernel/hostname").read_text()
    said = output(
        on,
        driving,
        textwrap.dedent(
            """
            for each in sys/kernel/hostname sysrq-trigger sys/kernel/core_pattern \\
                sys/net/ipv4/ip_forward irq/default_smp_affinity 1/oom_score_adj
            do (echo -1 > /proc/$each) 2>/dev/null && echo WRITTEN $each; done
            mount -t tmpfs none /tmp 2>/dev/null && echo MOUNTED
            mount -o remount,rw /proc/sys 2>/dev/null && echo REMOUNTED
            mknod /disk b 7 0 2>/dev/null && echo MADE
            cat /proc/keys /proc/timer_list /proc/kcore 2>/dev/null | wc -c
            ls /sys 2>/dev/null
            ls /dev
            """
        ),
    )
    for word in ("WRITTEN", "MOUNTED", "REMOUNTED", "MADE"):
        assert word not in said
    assert Path("/proc/sys/kernel/hostname").read_text() == before
    kept = {"core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr"}
    kept |= {"stdin", "stdout", "tty", "urandom", "zero", "console"}
    size, *devices = said.split()
    assert size == "0"
    assert set(devices) <= kept


def test_no_process_but_its_own_is_seen_or_killed(on: Machine, driving: Driving) -> None:
    other = driving.run(on.spec("echo begun; exec sleep 600"))
    driving.says(other, "begun")
    shim = on.inner_shim(other)
    said = output(
        on,
        driving,
        f"kill -9 {shim} {on.shim(other)}; for each in $(seq 2 40000);"
        " do [ -d /proc/$each ] && echo SEEN $each; done; kill -9 -1; echo over",
    )
    # The shell's own `seq` is over by then; what is seen is never another's.
    assert "SEEN" not in said
    assert said.endswith("over\n")
    assert driving.seen(other)["status"] == "running"
    assert Path(f"/proc/{shim}").exists()


def test_a_fork_bomb_is_bounded_and_ends_with_its_instance(on: Machine, driving: Driving) -> None:
    bomb = "bomb() { bomb | bomb & }; echo begun; (bomb) 2>/dev/null & wait; exec sleep 600"
    instance_id = driving.run(on.spec(bomb, processes=24))
    driving.says(instance_id, "begun")
    (group,) = groups_named(f"entrepot-{instance_id}", "pids")
    until(lambda: (group / "pids.events").read_text() != "max 0\n")
    assert (group / "pids.max").read_text() == "24\n"
    assert int((group / "pids.current").read_text()) <= 24
    driving("stop", instance_id, 0)
    assert driving.seen(instance_id)["exit_code"] == 137
    assert on.processes(instance_id) == set()


def test_a_memory_hog_is_killed_alone(on: Machine, driving: Driving) -> None:
    hog = on.spec("/bin/dd", "if=/dev/zero", "of=/dev/null", f"bs={256 * MIB}", "count=1")
    assert driving.ended(driving.run(hog))["exit_code"] == 137
    kept = output(on, driving, f"dd if=/dev/zero of=/dev/null bs={256 * MIB} count=1; echo $?")
    assert "137" in kept


def test_a_disk_filler_fills_its_own_disk_and_no_more(on: Machine, driving: Driving) -> None:
    said = output(
        on,
        driving,
        "dd if=/dev/zero of=/fill bs=1048576 count=100; wc -c < /fill; rm /fill;"
        " i=0; while touch /$i 2>/dev/null && [ $i -lt 20000 ]; do i=$((i+1)); done; echo files $i",
    )
    assert "No space left on device" in said
    lines = said.splitlines()
    written = next(int(line) for line in lines if line.isdigit())
    assert 8 * MIB < written <= 16 * MIB
    files = int(lines[-1].removeprefix("files "))
    assert 100 < files < 20_000


def test_what_is_written_is_seen_by_no_other_instance(on: Machine, driving: Driving) -> None:
    output(on, driving, "echo changed > /bin/new; rm /bin/yes; echo x > /etc/hosts")
    assert "changed" not in output(on, driving, "cat /bin/new; ls /bin/yes; cat /etc/hosts")
    assert not (on.layer / "bin/new").exists()
    assert (on.layer / "bin/yes").is_symlink()


def test_the_machines_loopback_and_other_instances_cannot_be_dialled(
    on: Machine, driving: Driving
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as everywhere:
        everywhere.bind(("0.0.0.0", 0))
        everywhere.listen()
        server.settimeout(0)
        everywhere.settimeout(0)
        other = driving.run(on.spec("nc -l -p 4000 -e echo reached", ports=[4000]))
        ports = server.getsockname()[1], everywhere.getsockname()[1], 4000
        addresses = "127.0.0.1", "169.254.169.254", "169.254.169.253", _address_of_the_machine()
        tries = "\n".join(
            f"nc -w 1 {address} {port} </dev/null && echo REACHED {address} {port}"
            for address in addresses
            for port in ports
        )
        own = "httpd -p 4001 -h /; nc -w 1 127.0.0.1 4001 </dev/null && echo OWN"
        said = output(on, driving, f"ip route; {tries}; {own}; echo over")
        assert "OWN" in said
        assert "REACHED" not in said
        assert "default" not in said
        for listener in (server, everywhere):
            with pytest.raises(BlockingIOError):
                listener.accept()
        assert driving.seen(other)["status"] == "running"


def _address_of_the_machine() -> str:
    """Return an address of this machine that is not loopback, or of a network that none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))
        except OSError:
            return "192.0.2.1"
        return str(asked.getsockname()[0])


def test_no_file_of_the_service_is_seen_and_ids_are_nobodys_here(
    on: Machine, driving: Driving
) -> None:
    given = on.spec("echo begun; exec sleep 600", environment={"SECRET": "of-the-instance"})
    instance_id = driving.run(given)
    driving.says(instance_id, "begun")
    said = output(on, driving, f"cat /proc/self/mountinfo; ls {on.base} {on.top}; true")
    assert str(on.top) not in said.replace(f"ls: {on.base}", "").replace(f"ls: {on.top}", "")
    program = on.last_process(instance_id)
    uids = set(Path(f"/proc/{program}/status").read_text().split("Uid:")[1].split("\n")[0].split())
    assert uids == {str(FIRST_INSTANCE_UID if on.runtime == "runc" else NOBODY)}
    every = [Path("/proc") / str(pid) / "cmdline" for pid in on.left().processes]
    assert not any(b"of-the-instance" in each.read_bytes() for each in every)
    folder = on.folder(instance_id)
    assert folder.stat().st_mode & 0o777 == 0o700
    private = {"config.json", "options", "order.json", "output"}
    for each in folder.iterdir():
        if each.name in private:
            assert each.stat().st_mode & 0o077 == 0, each


def test_a_processor_hog_is_bounded_and_gives_way(on: Machine, driving: Driving) -> None:
    hog = "echo begun; while :; do :; done & while :; do :; done"
    instance_id = driving.run(on.spec(hog, cpu_millis=100))
    driving.says(instance_id, "begun")
    (group,) = groups_named(f"entrepot-{instance_id}", "cpu")
    assert (group / "cpu.cfs_quota_us").read_text() == "10000\n"
    assert (group / "cpu.cfs_period_us").read_text() == "100000\n"
    assert (group / "cpu.shares").read_text() == "10\n"
    adjusted = {Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in on.processes(instance_id)}
    assert adjusted == {"500\n"}


def test_shims_are_together_in_a_group_that_gives_way_to_the_service(
    on: Machine, driving: Driving
) -> None:
    for _ in range(2):
        instance_id = driving.run(on.spec("echo begun; exec sleep 600"))
        driving.says(instance_id, "begun")
        of_shim = Path(f"/proc/{on.inner_shim(instance_id)}/cgroup").read_text()
        group = next(line.split(":")[2] for line in of_shim.splitlines() if ":cpu:" in line)
        assert group.endswith("/entrepot-shims")
        assert (Path("/sys/fs/cgroup/cpu") / group[1:] / "cpu.shares").read_text() == "512\n"
        program = Path(f"/proc/{on.last_process(instance_id)}/cgroup").read_text()
        assert f"/entrepot-{instance_id}\n" in program
        assert "shims" not in program


def test_what_the_kernel_counts_for_a_user_is_left_to_the_machine_and_to_other_instances(
    on: Machine, driving: Driving
) -> None:
    script = on.top / "takes"
    script.mkdir(exist_ok=True)
    (script / "taker.py").write_text(TAKER)
    given: dict[str, Any] = {"layers": ["/usr", str(script)], "environment": {"PYTHONHOME": "/"}}
    took = []
    for _ in range(2):
        instance_id = driving.run(on.spec("/bin/python3", "/taker.py", **given))
        said = driving.says(instance_id, "took")
        took.append(tuple(map(int, said.split("took ")[1].split())))
    assert took[0] == took[1]
    assert min(took[1]) > 0
    assert _can_watch(), "the machine's root has none of what instances take"


def _can_watch() -> bool:
    """Return True if this process, which is root's, may have one more instance of inotify."""
    descriptor = ctypes.CDLL(None).inotify_init()
    if descriptor >= 0:
        os.close(descriptor)
    return bool(descriptor >= 0)


def test_nothing_is_left_open_in_who_drives(on: Machine, driving: Driving) -> None:
    def count() -> int:
        return len(os.listdir(f"/proc/{driving.process.pid}/fd"))  # noqa: PTH208

    output(on, driving, "true")
    before = count()
    for _ in range(3):
        output(on, driving, "true")
    assert count() == before
