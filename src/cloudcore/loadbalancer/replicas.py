"""The common part of both drivers: a folder for each replica, and its process.

The folder is made before its process starts and deleted after the process has ended. So after a
crash at any moment, `known` and `stop` find everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cloudcore.files import is_at
from cloudcore.loadbalancer.configuration import (
    SOCKETS_NAME,
    ProcessLimits,
    backend_name,
    target_name,
)
from cloudcore.loadbalancer.driver import (
    ProxyFailed,
    ProxyPlan,
    ReplicaMetrics,
    ReplicaState,
    TargetStatus,
)
from cloudcore.nodes import detached_process
from cloudcore.nodes.detached_process import DetachedProcess, LaunchFailed
from cloudcore.nodes.shim_driver import write_file

Targets = Mapping[tuple[str, str], TargetStatus]
"""The status of each target, by the proxy's names of the backend and the target."""

DRAIN_SECONDS: Final = 30
HEAD_SECONDS: Final = 10
MOST_CONNECTIONS: Final = 4000
APPLIED_SECONDS: Final = 10
"""The time within which a proxy must apply a configuration."""
_ANSWER_SECONDS: Final = 5
POLL_SECONDS: Final = 0.02
_SIGNAL_SECONDS: Final = 0.3
_NAMES: Final = "names.json"
"""The file that maps a proxy's names to the names of backends and the ids of targets."""
_LAUNCH_LOCK: Final = "process.lock"
"""The lock file that a launch of `detached_process` holds."""


class Replicas(ABC):
    """Runs the replicas of one kind of proxy on this machine."""

    configuration_name: str
    """The name of the configuration file, different for each kind of proxy."""

    def __init__(
        self, folder: Path, *, drain_seconds: int = DRAIN_SECONDS, head_seconds: int = HEAD_SECONDS
    ) -> None:
        self._folder = folder
        self._drain_seconds = drain_seconds
        self._head_seconds = head_seconds

    @abstractmethod
    def check(self) -> None:
        """Raise `DriverUnusable`, with what is missing, if this machine cannot run replicas."""

    @abstractmethod
    async def _write(
        self,
        folder: Path,
        plan: ProxyPlan,
        certificates: Mapping[str, bytes],
        limits: ProcessLimits,
    ) -> tuple[str, str]:
        """Write the files that the configuration needs; return (configuration, digest).

        Raise `ProxyFailed` if the proxy would reject the configuration.
        """

    @abstractmethod
    def _argv(self, folder: Path, netns: Path | None) -> Sequence[str]:
        """Return the command line that starts a replica."""

    @abstractmethod
    def _gives_up_root(self, plan: ProxyPlan, netns: Path | None) -> bool:
        """Return True if a replica that root starts can switch to an unprivileged user."""

    @abstractmethod
    async def _reload(self, folder: Path, process: DetachedProcess, text: str) -> None:
        """Make a running replica read its new configuration, `text`."""

    @abstractmethod
    async def _digest_of(self, folder: Path) -> str | None:
        """Return the digest of a replica's configuration, or None if it does not answer."""

    @abstractmethod
    async def _state_of(self, folder: Path) -> tuple[Targets, ReplicaMetrics]:
        """Return a replica's (targets, metrics); raise `OSError` if it does not answer."""

    async def apply(
        self, plan: ProxyPlan, replica: int, certificates: Mapping[str, bytes], netns: Path | None
    ) -> None:
        """Start a replica, or reload it if anything changed; return when it carries out the plan.

        A reload drops no connection. `certificates` maps the file names in the plan to PEM with
        chain and key. `netns` is the network namespace in which to start the replica; None for the
        machine's.

        Raise `ProxyFailed` if the replica cannot carry out the plan.
        """
        folder = self._folder / plan.balancer_id / str(replica)
        certificates = _used(plan, certificates)
        async with _held(folder, is_made=True):
            process = detached_process.find(folder)
            if process is not None and not (folder / self.configuration_name).exists():
                await self._end(process)  # the operator has chosen another driver
                process = None
            if process is None:
                _clear(folder)
            sockets = _linked(folder, plan)
            limits = self._limits(plan, netns)
            text, digest = await self._write(folder, plan, certificates, limits)
            if process is not None and await self._digest_of(folder) == digest:
                return
            write_file(folder / _NAMES, json.dumps(_names(plan)).encode())
            write_file(folder / self.configuration_name, text.encode())
            if process is None:
                process = await self._start(folder, netns)
            else:
                await self._reload_in_time(folder, process, text)
            await self._applied(folder, process, digest)
            self._tidy(folder, text)
            for link in (folder / SOCKETS_NAME).iterdir():
                if link.name not in sockets:
                    link.unlink()

    async def stop(self, balancer_id: str, replica: int) -> None:
        """Let a replica finish its connections, then end its process and delete its files.

        Connections that last longer than the driver's `drain_seconds` are cut. Do nothing if there
        is no such replica.
        """
        folder = self._folder / balancer_id / str(replica)
        async with _held(folder, is_made=False) as is_there:
            if is_there:
                with _no_launch(folder):
                    process = detached_process.find(folder)
                    if process is not None:
                        await self._end(process)
                    shutil.rmtree(folder)
        with contextlib.suppress(OSError):  # it has other replicas, or is gone
            folder.parent.rmdir()

    async def seen(self, balancer_id: str) -> Sequence[ReplicaState]:
        """Return the state of each replica of a balancer on this machine, in order of number."""
        folders = _named_by_numbers(self._folder / balancer_id)
        return [await self._seen(folders[replica], replica) for replica in sorted(folders)]

    async def known(self) -> Sequence[str]:
        """Return the ids of the balancers that have a folder on this machine."""
        try:
            return sorted(found.name for found in self._folder.iterdir())
        except FileNotFoundError:
            return []

    def _limits(self, plan: ProxyPlan, netns: Path | None) -> ProcessLimits:
        _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(10, min(MOST_CONNECTIONS, (descriptors - 500) // 2))
        is_unprivileged = os.geteuid() == 0 and self._gives_up_root(plan, netns)
        return ProcessLimits(most, self._drain_seconds, self._head_seconds, is_unprivileged)

    async def _start(self, folder: Path, netns: Path | None) -> DetachedProcess:
        try:
            return await asyncio.to_thread(
                detached_process.start, folder, self._argv(folder, netns), netns=netns
            )
        except LaunchFailed as failed:
            raise ProxyFailed(str(failed)) from None

    async def _reload_in_time(self, folder: Path, process: DetachedProcess, text: str) -> None:
        try:
            async with asyncio.timeout(APPLIED_SECONDS):
                await self._reload(folder, process, text)
        except TimeoutError:
            raise ProxyFailed("the proxy does not answer") from None

    async def _applied(self, folder: Path, process: DetachedProcess, digest: str) -> None:
        """Wait until a replica has applied its configuration; raise `ProxyFailed` if it fails."""
        try:
            async with asyncio.timeout(APPLIED_SECONDS):
                while await self._digest_of(folder) != digest:
                    if not process.is_alive or self._has_failed(folder):
                        break
                    await asyncio.sleep(POLL_SECONDS)
                else:
                    return
        except TimeoutError:
            pass
        words = "the proxy is too slow" if process.is_alive else "the proxy has ended"
        raise ProxyFailed(self._complaint(folder) or _last_line(folder) or words)

    @abstractmethod
    def _has_failed(self, folder: Path) -> bool:
        """Return True if a replica reports that it could not apply its configuration."""

    @abstractmethod
    def _complaint(self, folder: Path) -> str | None:
        """Return the reason for which a replica rejects its configuration, or None."""

    @abstractmethod
    def _tidy(self, folder: Path, text: str) -> None:
        """Delete files that the configuration, `text`, no longer mentions."""

    async def _end(self, process: DetachedProcess) -> None:
        """Let a process finish its connections and end; kill it after `drain_seconds`."""
        try:
            async with asyncio.timeout(self._drain_seconds + _SIGNAL_SECONDS):
                while process.signal(signal.SIGUSR1):  # again, in case it was not ready
                    await _has_ended(process, _SIGNAL_SECONDS)
        except TimeoutError:
            for each in _session_of(process):
                each.signal(signal.SIGKILL)
                await _has_ended(each, _ANSWER_SECONDS)

    async def _seen(self, folder: Path, replica: int) -> ReplicaState:
        if detached_process.find(folder) is None:
            return ReplicaState(replica, is_alive=False)
        try:
            told, metrics = await self._state_of(folder)
            names = json.loads((folder / _NAMES).read_bytes())
        except (OSError, ValueError):
            return ReplicaState(replica, is_alive=False)
        targets = {
            (names[backend][0], names[backend][1][target]): status
            for (backend, target), status in told.items()
            if target in names.get(backend, ("", {}))[1]
        }
        return ReplicaState(replica, is_alive=True, targets=targets, metrics=metrics)


def _clear(folder: Path) -> None:
    """Delete the files of a process that has ended, except the lock file of a launch."""
    for found in folder.iterdir():
        if found.is_dir():
            shutil.rmtree(found)
        elif found.name != _LAUNCH_LOCK:
            found.unlink()


def _linked(folder: Path, plan: ProxyPlan) -> set[str]:
    """Link the sockets of targets into the folder; return the links' names, one for each socket."""
    (folder / SOCKETS_NAME).mkdir(mode=0o700, exist_ok=True)
    targets = [target for backend in plan.backends for target in backend.targets]
    sockets = {target_name(target): target.socket for target in targets if target.socket}
    for name, path in sockets.items():
        if not (folder / SOCKETS_NAME / name).is_symlink():
            (folder / SOCKETS_NAME / name).symlink_to(path)
    return set(sockets)


def _used(plan: ProxyPlan, certificates: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return the certificates that listeners use; raise `ProxyFailed` if one is missing."""
    files = sorted({one.certificate_file for one in plan.listeners if one.certificate_file})
    try:
        return {file: certificates[file] for file in files}
    except KeyError as missing:
        raise ProxyFailed(f"the certificate {missing} of a listener is not there") from None


def _names(plan: ProxyPlan) -> dict[str, tuple[str, dict[str, str]]]:
    return {
        backend_name(backend.name): (
            backend.name,
            {target_name(target): target.id for target in backend.targets},
        )
        for backend in plan.backends
    }


def _named_by_numbers(folder: Path) -> dict[int, Path]:
    try:
        return {int(found.name): found for found in folder.iterdir() if found.name.isdecimal()}
    except FileNotFoundError:
        return {}


async def ask(folder: Path, name: str, question: str) -> str:
    """Send a line to a Unix socket in a folder, and return the answer.

    Raise `OSError` if there is no answer within five seconds.
    """
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:  # the path itself may be too long for a socket
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{name}")
            try:
                writer.write(question.encode() + b"\n")
                return (await reader.read()).decode()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    finally:
        os.close(directory)


def _last_line(folder: Path) -> str:
    output = (folder / detached_process.OUTPUT).read_bytes()[-500:].decode(errors="replace")
    return next(reversed(output.splitlines()), "")


@contextlib.asynccontextmanager
async def _held(folder: Path, *, is_made: bool) -> AsyncIterator[bool]:
    """Lock a folder against all other processes and tasks; yield True while it is locked.

    If the folder does not exist, make it if `is_made`; otherwise lock nothing, and yield False.
    """
    while True:
        if is_made:
            _make(folder)
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if is_made:
                continue
            yield False
            return
        try:
            await _lock(opened)
            if is_at(folder, opened):
                yield True
                return
        finally:
            os.close(opened)


def _make(folder: Path) -> None:
    """Make the folders of a replica, its balancer and all balancers, closed to other users."""
    folder.parents[1].mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # a stop has just deleted the balancer's
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


async def _lock(opened: int) -> None:
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        await asyncio.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _no_launch(folder: Path) -> Iterator[None]:
    """Wait until a launch left by a killed process has ended; allow no other during the block."""
    lock = os.open(folder / _LAUNCH_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _session_of(process: DetachedProcess) -> list[DetachedProcess]:
    """Return all processes in the session that a process leads."""
    found = []
    for name in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == process.pid:
                found.append(DetachedProcess(int(name), int(fields[19])))
    return found


async def _has_ended(process: DetachedProcess, seconds: float) -> bool:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        if process.is_alive:
            async with asyncio.timeout(seconds):
                await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return True
