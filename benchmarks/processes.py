"""CPU time and peak memory of a server's processes, from ``/proc``."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
_PART = re.compile(
    r"^[0-9a-f]+-[0-9a-f]+ \S{4} \S+ \S+ (\d+) *(.*)\n(?:\w+: .*\n)*?Pss: +(\d+) kB", re.MULTILINE
)
RESET_PEAK = "5"  # proc_pid_clear_refs(5): VmHWM starts again from the present size

_FIELD = re.compile(r"^(VmHWM|VmRSS|RssAnon):\s+(\d+) kB", re.MULTILINE)


def process_tree(root: int) -> list[int]:
    """Return `root` and all its descendants."""
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue  # the thread has ended since
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Return the total CPU time of `pids`, to the nanosecond; processes that have ended count 0."""
    total = 0.0
    for pid in pids:
        process_clock = (~pid << 3) | 2  # clock_getcpuclockid(3), which Python lacks
        try:
            total += time.clock_gettime(process_clock)
        except OSError:
            continue
    return total


def memory_bytes(pid: int) -> dict[str, int]:
    """Return VmHWM, VmRSS and RssAnon of `pid`; an empty dict if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    return {name: int(kib) * 1024 for name, kib in _FIELD.findall(status)}


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size of `pid`: a page that n processes share counts 1/n.

    0 if the process has ended.
    """
    return _rollup(pid, "Pss")


def private_bytes(pid: int) -> int:
    """Return the size of the pages that `pid` alone has and has written; 0 if it has ended."""
    return _rollup(pid, "Private_Dirty")


def parts_bytes(pid: int) -> dict[str, int]:
    """Return the proportional set size of `pid` by what it is; zeros if it has ended.

    ``heap`` is what malloc got by brk(2), ``other`` the rest that is no file's: what malloc and
    Python mapped, and stacks; ``files`` are programs, libraries and databases, as far as read.
    """
    found = {"heap": 0, "other": 0, "files": 0}
    try:
        smaps = Path(f"/proc/{pid}/smaps").read_text()
    except OSError:
        return found
    for inode, name, size in _PART.findall(smaps):
        kind = "files" if inode != "0" else "heap" if name == "[heap]" else "other"
        found[kind] += int(size) * 1024
    return found


def _rollup(pid: int, name: str) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{name}:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@dataclass
class Watch:
    """The cost of some process trees from `start` to `stop`."""

    roots: Sequence[int]
    pids: list[int] = field(default_factory=list)
    cpu_seconds: float = 0.0
    peak_worker_bytes: int = 0  # VmHWM of the largest process
    peak_tree_bytes: int = 0  # sum of VmRSS, sampled
    peak_anonymous_bytes: int = 0  # RssAnon of the largest process, sampled

    def start(self) -> None:
        """Read the counters; reset the peaks of memory if the kernel allows it."""
        self.pids = [pid for root in self.roots for pid in process_tree(root)]
        for pid in self.pids:
            try:
                Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
            except OSError:
                continue  # not ours: its peak is the one since it started
        self.cpu_seconds = -cpu_seconds(self.pids)

    def sample(self) -> None:
        """Read the memory; call it several times a second during the load."""
        seen = [memory_bytes(pid) for pid in self.pids]
        self.peak_tree_bytes = max(self.peak_tree_bytes, sum(m.get("VmRSS", 0) for m in seen))
        anonymous = max(m.get("RssAnon", 0) for m in seen)
        self.peak_anonymous_bytes = max(self.peak_anonymous_bytes, anonymous)
        self.peak_worker_bytes = max(m.get("VmHWM", 0) for m in seen)

    def stop(self) -> None:
        """Read the counters again."""
        self.cpu_seconds += cpu_seconds(self.pids)
        self.sample()


def machine() -> dict[str, str | float]:
    """Return the properties of the machine that affect the results."""
    cpu = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpu, re.MULTILINE)
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": model.group(1) if model else "unknown",
        "sha_instructions": "yes" if re.search(r"\b(sha_ni|sha2)\b", cpu) else "no",
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)),
        "kernel": os.uname().release,
        "load_average": round(os.getloadavg()[0], 1),  # of others: a busy machine blurs ratios
    }
