"""The driver of HAProxy (2.6): each replica is a master, which replaces its worker on a reload."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cloudcore.loadbalancer.configuration import (
    CHROOT_NAME,
    SOCKET_NAME,
    STATE_NAME,
    ProcessLimits,
    haproxy_configuration,
)
from cloudcore.loadbalancer.driver import ProxyFailed, ProxyPlan, ReplicaMetrics, TargetStatus
from cloudcore.loadbalancer.replicas import POLL_SECONDS, Replicas, Targets, ask
from cloudcore.nodes.detached_process import OUTPUT, DetachedProcess
from cloudcore.nodes.node import DriverUnusable
from cloudcore.nodes.shim_driver import write_file

PROGRAM_PATH: Final = f"{os.defpath}:/usr/local/sbin:/usr/sbin:/sbin"
_VERSION: Final = re.compile(rb"HAProxy version ([0-9]+)\.([0-9]+)")
_OLDEST: Final = (2, 6)
_CERTIFICATE: Final = "certificate-"
_VERIFIED: Final = "verified.cfg"
_MOST_OUTPUT_BYTES: Final = 1024 * 1024
_RELOADING: Final = "Reloading HAProxy"
_FAILED: Final = "Loading failure!"
"""The last line of a master whose reload failed; the old worker continues."""
_POLLS_A_SIGNAL: Final = 15
_NO_STATE: Final = b"1\n"
"""A state file without servers: only the version of the format."""
_MIGRATING: Final = 'echo 1 >/proc/sys/net/ipv4/tcp_migrate_req; exec "$0" "$@"'
"""A shell command that changes a setting of the network namespace and then runs HAProxy. With the
setting, connections that an ending replica has not accepted go to another replica."""


class HaproxyDriver(Replicas):
    """Runs HAProxy replicas; each reads its configuration again on SIGUSR2."""

    configuration_name = "haproxy.cfg"

    def check(self) -> None:
        """Check that HAProxy is installed and not too old; see `Replicas.check`."""
        program = shutil.which("haproxy", path=PROGRAM_PATH)
        if program is None:
            raise DriverUnusable("balancer_driver haproxy: there is no program haproxy; install it")
        told = subprocess.run((program, "-v"), capture_output=True, check=False).stdout  # noqa: S603
        found = _VERSION.match(told)
        if found is None or (int(found[1]), int(found[2])) < _OLDEST:
            raise DriverUnusable("balancer_driver haproxy: it needs HAProxy 2.6 or newer")

    async def _write(
        self,
        folder: Path,
        plan: ProxyPlan,
        certificates: Mapping[str, bytes],
        limits: ProcessLimits,
    ) -> tuple[str, str]:
        files = {}
        for name, pem in certificates.items():
            files[name] = f"{_CERTIFICATE}{hashlib.sha256(pem).hexdigest()[:16]}.pem"
            write_file(folder / files[name], pem)
        (folder / CHROOT_NAME).mkdir(mode=0o755, exist_ok=True)
        if not (folder / STATE_NAME).exists():
            write_file(folder / STATE_NAME, _NO_STATE)
        text, digest = haproxy_configuration(plan, files, limits)
        if not self._is_written(folder, text):
            await _verify(folder, text)
        return text, digest

    def _is_written(self, folder: Path, text: str) -> bool:
        try:
            return (folder / self.configuration_name).read_text() == text
        except FileNotFoundError:
            return False

    def _gives_up_root(self, plan: ProxyPlan, netns: Path | None) -> bool:  # noqa: ARG002
        return not plan.has_socket_targets  # the sockets are in folders that only root can enter

    def _argv(self, folder: Path, netns: Path | None) -> Sequence[str]:  # noqa: ARG002
        program = (_program(), "-W", "-db", "-f", self.configuration_name)
        return program if netns is None else ("/bin/sh", "-c", _MIGRATING, *program)

    async def _reload(self, folder: Path, process: DetachedProcess, text: str) -> None:  # noqa: ARG002
        try:
            state = await ask(folder, SOCKET_NAME, "show servers state")
        except OSError:
            state = ""
        write_file(folder / STATE_NAME, state.strip().encode() + b"\n" if state else _NO_STATE)
        os.truncate(folder / OUTPUT, 0)  # the process appends to it
        # The signal kills a master that has no handler yet, and may be lost just after the start.
        while process.is_alive:
            if _catches(process, signal.SIGUSR2):
                process.signal(signal.SIGUSR2)
            for _ in range(_POLLS_A_SIGNAL):
                await asyncio.sleep(POLL_SECONDS)
                if _RELOADING in _output(folder):
                    return

    async def _digest_of(self, folder: Path) -> str | None:
        try:
            information = await ask(folder, SOCKET_NAME, "show info")
        except OSError:
            return None
        lines = dict(line.split(": ", 1) for line in information.splitlines() if ": " in line)
        return lines.get("description")

    async def _state_of(self, folder: Path) -> tuple[Targets, ReplicaMetrics]:
        told = (await ask(folder, SOCKET_NAME, "show stat")).removeprefix("# ")
        if (folder / OUTPUT).stat().st_size > _MOST_OUTPUT_BYTES:
            os.truncate(folder / OUTPUT, 0)  # a line for each target that comes or goes
        rows = list(csv.DictReader(told.splitlines()))
        servers = [row for row in rows if row["svname"] not in ("FRONTEND", "BACKEND")]
        targets = {(row["pxname"], row["svname"]): _status(row) for row in servers}
        return targets, _metrics([row for row in rows if row["svname"] == "FRONTEND"])

    def _has_failed(self, folder: Path) -> bool:
        return _FAILED in _output(folder)

    def _complaint(self, folder: Path) -> str | None:
        return _alert(_output(folder))

    def _tidy(self, folder: Path, text: str) -> None:
        for file in folder.glob(f"{_CERTIFICATE}*"):
            if file.name not in text:
                file.unlink()


def _catches(process: DetachedProcess, number: signal.Signals) -> bool:
    """Return True if a process has a handler for a signal (proc(5))."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    caught = int(status.partition("\nSigCgt:")[2].split(None, 1)[0], 16)
    return bool(caught >> (number - 1) & 1)


def _output(folder: Path) -> str:
    return (folder / OUTPUT).read_text(errors="replace")


def _alert(told: str) -> str | None:
    return next((line for line in told.splitlines() if line.startswith("[ALERT]")), None)


def _program() -> str:
    return shutil.which("haproxy", path=PROGRAM_PATH) or "haproxy"


async def _verify(folder: Path, text: str) -> None:
    """Raise `ProxyFailed` if HAProxy rejects the configuration."""
    write_file(folder / _VERIFIED, text.encode())
    checked = await asyncio.create_subprocess_exec(
        *(_program(), "-c", "-f", _VERIFIED),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, told = await checked.communicate()
    (folder / _VERIFIED).unlink()
    if checked.returncode != 0:
        raise ProxyFailed(_alert(told.decode(errors="replace")) or "HAProxy refuses it")


def _status(row: Mapping[str, str]) -> TargetStatus:
    if row["status"].startswith("DRAIN") or row["weight"] == "0":
        return "draining"
    if row["check_status"] in ("", "INI"):
        return "unknown"
    return "healthy" if row["status"].startswith("UP") else "unhealthy"


def _metrics(frontends: Sequence[Mapping[str, str]]) -> ReplicaMetrics:
    def total(name: str) -> int:
        return sum(int(row[name] or 0) for row in frontends)

    answers = {f"{digit}xx": total(f"hrsp_{digit}xx") for digit in range(1, 6)}
    return ReplicaMetrics(
        bytes_in=total("bin"),
        bytes_out=total("bout"),
        connections=total("stot"),
        requests=total("req_tot"),
        answers={name: count for name, count in answers.items() if count},
    )
