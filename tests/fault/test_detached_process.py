"""Processes that outlive who starts them: one a folder whoever dies, and never another's id."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudcore.nodes import detached_process
from cloudcore.nodes.detached_process import DetachedProcess, LaunchFailed
from tests.databases import program, program_environment

ENDLESS = ("tail", "-f", "/dev/null")
PLACES = ("start", "lock", "name", "named", "exec")


class Marked:
    """A folder, and the processes that have its mark in their environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"KEPT_MARK={uuid.uuid4()}"
        self.env = {**os.environ, "KEPT_MARK": self.mark.partition("=")[2]}

    def start(self, *argv: str) -> DetachedProcess:
        return detached_process.start(self.folder, argv or ENDLESS, env=self.env)

    def programs(self) -> list[int]:
        """Return the ids of the processes that run the program."""
        every = Path("/proc").glob("[0-9]*")
        return [int(process.name) for process in every if self._has(process)]

    def _has(self, process: Path) -> bool:
        try:
            return (
                self.mark.encode() in (process / "environ").read_bytes().split(b"\0")
                and (process / "cmdline").read_bytes().split(b"\0")[0] == b"tail"
            )
        except OSError:
            return False


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    made = Marked(tmp_path / "kept")
    yield made
    found = detached_process.find(made.folder)
    if found is not None:
        found.signal(signal.SIGKILL)
        assert found.wait(60)
    assert made.programs() == []


def test_a_process_outlives_who_started_it_and_is_found_by_the_next(marked: Marked) -> None:
    first = marked.start()
    assert detached_process.find(marked.folder) == first
    assert first.is_alive
    assert os.getsid(first.pid) == first.pid != os.getsid(0)
    assert Path(f"/proc/{first.pid}/cwd").readlink() == marked.folder
    parent = Path(f"/proc/{first.pid}/stat").read_bytes().rpartition(b")")[2].split()[1]
    assert int(parent) != os.getpid()
    assert marked.start() == first
    assert marked.programs() == [first.pid]


def test_many_starts_at_once_give_one_process(marked: Marked) -> None:
    with ThreadPoolExecutor(6) as threads:
        started = set(threads.map(lambda _: marked.start(), range(6)))
    assert len(started) == 1
    assert marked.programs() == [started.pop().pid]


@pytest.mark.parametrize("place", PLACES)
def test_whoever_is_killed_on_the_way_a_folder_has_one_process(marked: Marked, place: str) -> None:
    ended = subprocess.run(
        program("tests.fault.launched_to_death", place, str(marked.folder), *ENDLESS),
        env={**program_environment(), **marked.env},
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with ThreadPoolExecutor(3) as threads:
        started = set(threads.map(lambda _: marked.start(), range(3)))
    assert len(started) == 1
    assert marked.programs() == [started.pop().pid]


def test_a_process_is_never_signalled_by_an_id_that_another_has_now(marked: Marked) -> None:
    living = marked.start()
    former = living._replace(began=living.began - 1)
    assert not former.is_alive
    assert former.signal(signal.SIGKILL) is False
    assert former.wait(0)
    identity = marked.folder / detached_process.IDENTITY
    kept = identity.read_text()
    identity.write_text(f"{former.pid} {former.began} {kept.split()[2]}\n")
    assert detached_process.find(marked.folder) is None
    identity.write_text(f"{living.pid} {living.began} of-another-boot\n")
    assert detached_process.find(marked.folder) is None
    identity.write_text(kept)
    assert living.is_alive


def test_the_end_of_a_process_is_seen_also_when_nobody_has_waited_for_it(tmp_path: Path) -> None:
    child = subprocess.Popen(ENDLESS)
    stat = Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()
    kept = DetachedProcess(child.pid, int(stat[19]))
    assert kept.is_alive
    assert not kept.wait(0)
    assert kept.signal(signal.SIGKILL) is True
    assert kept.wait(60)
    assert Path(f"/proc/{child.pid}").exists()  # a zombie of this process
    assert not kept.is_alive
    child.wait()
    assert kept.signal(signal.SIGKILL) is False
    assert detached_process.find(tmp_path / "none") is None


def test_a_program_that_cannot_be_run_is_told_and_leaves_no_process(marked: Marked) -> None:
    with pytest.raises(LaunchFailed, match="no-such-program"):
        marked.start("no-such-program")
    assert detached_process.find(marked.folder) is None
    no_program = marked.folder / "text"
    no_program.write_text("neither script nor binary")
    no_program.chmod(0o755)
    with pytest.raises(LaunchFailed, match="Exec format error"):
        marked.start(str(no_program))
    assert detached_process.find(marked.folder) is None


def test_output_goes_to_a_file_and_its_environment_is_all_it_has(marked: Marked) -> None:
    try:
        ended = detached_process.start(marked.folder, ("env",), env={"ONE": "1"})
    except LaunchFailed:
        ended = None  # it has ended before it was looked for
    assert ended is None or ended.wait(60)
    assert (marked.folder / detached_process.OUTPUT).read_text() == "ONE=1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="another network namespace takes root")
def test_a_process_begins_in_the_network_namespace_that_is_named(marked: Marked) -> None:
    with subprocess.Popen(
        ("unshare", "--net", "sh", "-c", "echo; cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        other.stdout.readline()
        netns = Path(f"/proc/{other.pid}/ns/net")
        named = netns.readlink()
        kept = detached_process.start(marked.folder, ENDLESS, env=marked.env, netns=netns)
        assert Path(f"/proc/{kept.pid}/ns/net").readlink() == named
        assert named != Path("/proc/self/ns/net").readlink()
        other.stdin.close()
