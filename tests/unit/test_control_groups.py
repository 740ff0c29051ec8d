"""Which control groups a machine has, as it tells of them: both versions, and a container's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudcore.nodes.control_groups import Hierarchy, hierarchies_of

PLAIN = "26 1 0:24 / / rw,relatime - ext4 /dev/vda rw\n"
V2 = "30 26 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
UNIFIED = "39 30 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def v1(names: str, root: str = "/") -> str:
    return f"31 30 0:27 {root} /sys/fs/cgroup/{names} rw shared:9 - cgroup cgroup rw,{names}\n"


def found(version: int, mount: str, own: str, *names: str) -> Hierarchy:
    return Hierarchy(version, Path(mount), Path(own), frozenset(names))


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        (
            "0::/system.slice/entrepot.service/service\n",
            PLAIN + V2,
            [found(2, "/sys/fs/cgroup", "/sys/fs/cgroup/system.slice/entrepot.service/service")],
        ),
        (
            "4:memory:/\n3:cpu,cpuacct:/a/b\n2:name=systemd:/x\n0::/x\n",
            PLAIN + v1("memory") + v1("cpu,cpuacct") + v1("name=systemd") + UNIFIED,
            [
                found(1, "/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory", "memory"),
                found(
                    1,
                    "/sys/fs/cgroup/cpu,cpuacct",
                    "/sys/fs/cgroup/cpu,cpuacct/a/b",
                    "cpu",
                    "cpuacct",
                ),
                found(
                    1,
                    "/sys/fs/cgroup/name=systemd",
                    "/sys/fs/cgroup/name=systemd/x",
                    "name=systemd",
                ),
                found(2, "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/x"),
            ],
        ),
        (
            "5:pids:/docker/0123/inner\n",
            v1("pids", "/docker/0123"),
            [found(1, "/sys/fs/cgroup/pids", "/sys/fs/cgroup/pids/inner", "pids")],
        ),
        ("0::/\n", PLAIN, []),
    ],
    ids=["version 2", "both", "in a container", "none"],
)
def test_hierarchies_are_read_from_what_the_kernel_tells(
    groups: str, mounts: str, expected: list[Hierarchy]
) -> None:
    assert [*hierarchies_of(groups, mounts)] == expected
