"""What the machine's folder of instances may hold after a loss of power, or by a mistake."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from cloudcore.compute.driver import SandboxFailed
from cloudcore.compute.runc import runc_driver
from cloudcore.compute.shim_instances import ShimInstances
from cloudcore.nodes import control_groups
from cloudcore.nodes.shim import STATE


@pytest.mark.parametrize("torn", [b"", b'{"status": "run', b"\0\0\0\0", b"null"])
def test_a_torn_state_of_one_instance_hides_no_other(tmp_path: Path, torn: bytes) -> None:
    for name, state in (("one", torn), ("other", b'{"status": "stopped", "exit_code": 3}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / STATE).write_bytes(state)

    seen = asyncio.run(runc_driver(tmp_path, 1_000_000).seen())

    assert seen["one"].status == "stopped"
    assert seen["one"].exit_code is None
    assert seen["other"].exit_code == 3


_ENDS_AT_ONCE: Final = '''
import json, os
from cloudcore.nodes.shim import start_by_bubblewrap

def ended_before(pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    raise ProcessLookupError

os.pidfd_open = ended_before
words = """printf '{"child-pid": %s}' $$ >/dev/fd/103; exit 7"""
program = start_by_bubblewrap(["sh", "-c", words], 2, (), files={})
print(os.waitstatus_to_exitcode(os.waitpid(program.awaited, 0)[1]))
'''
"""Starts a program that has ended before its descriptor is opened."""


def test_the_exit_code_of_a_program_that_ends_at_once_is_not_lost() -> None:
    command = (sys.executable, "-c", _ENDS_AT_ONCE)
    assert subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout == b"7\n"


class _Busy:
    """Confines nothing, and has groups that cannot be removed."""

    name = "busy"
    namespaces: Sequence[str] = ()
    takes_links = False

    def __init__(self, group: Path) -> None:
        self._group = group

    def require(self) -> None:
        pass

    def order(self, _spec: object, _folder: Path) -> Mapping[str, object]:
        return {}

    def groups(self, _instance_id: str) -> Sequence[Path]:
        return [self._group]


def test_what_a_driver_says_names_no_folder_of_the_machine_but_to_its_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups, "_SECONDS_TO_END", 0)
    group = tmp_path / "node" / "busy"
    (group / "below").mkdir(parents=True)
    instances = ShimInstances(tmp_path / "node" / "instances", _Busy(group))

    with pytest.raises(SandboxFailed) as failed:
        asyncio.run(instances.remove("one"))

    assert str(failed.value) == "processes of one do not end: Directory not empty"
    assert str(group) in str(failed.value.__cause__)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("runc: mkdir /sys/fs/cgroup/cpu/entrepot-1: no space left", "runc: mkdir: no space left"),
        ("mount: {base}/one/disk: failed to set up a loop", "mount: failed to set up a loop"),
        ("[Errno 28] No space left on device: '{base}/one/order.json'", "No space left on device"),
        (
            'exec: "/bin/no": stat /bin/no: no such file',
            'exec: "/bin/no": stat /bin/no: no such file',
        ),
    ],
)
def test_a_problem_that_is_told_names_no_folder_of_the_machine(
    tmp_path: Path, problem: str, told: str
) -> None:
    state = {"status": "stopped", "problem": problem.format(base=tmp_path)}
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / STATE).write_text(json.dumps(state))

    seen = asyncio.run(runc_driver(tmp_path, 1_000_000).seen())

    assert seen["one"].problem == told
