"""Database servers of this machine, each confined by bubblewrap, with a shim beside it.

A server has a folder: `data`, `sockets` and `spool` belong to the server's own user, the rest to
the service. After a restore, the file `unfit` exists until the data have recovered and their roles
have lost their extra rights; until then the data are not served.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.databases.archive.driver import Recovery
from cloudcore.databases.servers import data_folders, postgres
from cloudcore.databases.servers.confinement import User, confined, password_line, user_of
from cloudcore.databases.servers.driver import (
    DATA_INSIDE,
    SPOOL_INSIDE,
    Proof,
    ServerFailed,
    ServerPaths,
    ServerSpec,
    ServerState,
)
from cloudcore.databases.servers.locks import ServerLocks
from cloudcore.databases.servers.shim import INPUT
from cloudcore.nodes import control_groups, detached_process, seccomp
from cloudcore.nodes.control_groups import Bounds, GroupsMissing
from cloudcore.nodes.detached_process import DetachedProcess, LaunchFailed
from cloudcore.nodes.node import DriverUnusable
from cloudcore.nodes.output import NEWER, OLDER, tail
from cloudcore.nodes.shim import ORDER, SECCOMP_FILE, STATE, NoAnswer, ask
from cloudcore.nodes.shim_driver import (
    kill,
    living,
    read_json,
    require_confinement,
    require_programs,
    settle,
    shim_command,
    stop,
    write_file,
)

_THREADS: Final = ThreadPoolExecutor(8, "database-servers")
_PROGRAMS: Final = {"bwrap": "bubblewrap", "unshare": "util-linux", "setpriv": "util-linux"}
_SHIM: Final = "cloudcore.databases.servers.shim"
_OWN_USERS: Final = ("--user", "--map-root-user")
"""Options of the shim, if the service is not root."""
_GROUP: Final = "entrepot-database-"
_UNFIT: Final = "unfit"
_FAST_SECONDS: Final = 60.0
"""How long a fast shutdown may take; then the server is killed, and recovers at its next start."""
_SINGLE_SECONDS: Final = 600.0
_ASK_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02
_LONGEST_LOOK_SECONDS: Final = 0.5
_MEASURED_SECONDS: Final = 60.0
_PROCESSES: Final = 64
"""How many processes a server may have beside those of its sessions."""
_TOLD_BYTES: Final = 2000
_TRIAL: Final = ".trial"


class Listening(NamedTuple):
    """The address, ports and users of the servers of this machine."""

    address: str
    first_port: int
    first_uid: int
    """User id of the server on the first port; the next port has the next id. Only root uses it."""


class BubblewrapServers:
    """Runs servers by bubblewrap. Every method may be repeated after a crash at any point.

    A server outlives the service. Its data belong to a customer, so it has neither credentials nor
    a network, and can access only its own files.
    """

    def __init__(self, base: Path, listening: Listening) -> None:
        """Store the settings; `base` is the folder for all files."""
        self._base = base.absolute()
        self._listening = listening
        self._programs = ServerLocks(_THREADS, self._base)
        self._sizes: dict[str, tuple[float, int]] = {}
        """When each server is measured again (monotonic), and its last size in bytes."""

    @property
    def versions(self) -> Sequence[int]:
        """Return the major versions whose programs this machine has, in ascending order."""
        return [
            each
            for each in postgres.VERSIONS
            if all(Path(postgres.program(each, name)).is_file() for name in ("initdb", "postgres"))
        ]

    def check(self) -> None:
        """Run a confined trial program; raise `DriverUnusable`, with the reason, if it fails."""
        named = "database_driver bubblewrap"
        require_programs(named, _PROGRAMS)
        if not self.versions:
            raise DriverUnusable(f"{named} needs PostgreSQL: install the package postgresql-15")
        require_confinement(named)
        port = self._listening.first_port
        trial = ServerSpec(f"{_TRIAL}-{os.getpid()}", self.versions[-1], 64, 1000, 1, port)
        try:
            self._run(trial, [postgres.program(trial.version, "postgres"), "--version"])
        except (ServerFailed, OSError) as failed:
            raise DriverUnusable(f"{named} cannot run a program here: {failed}") from None
        finally:
            self._end(trial.id)
            data_folders.remove_tree(self._folder(trial.id))

    def held(self, server_id: str) -> AbstractAsyncContextManager[None]:
        """Lock a server against other processes of this machine during the block.

        Each method takes this lock itself, except those that only look at a server or only send it
        commands, such as `set_password`. The block, and each method that takes the lock, raise
        `ServerBusy` if another process holds it for ten seconds.
        """
        return self._programs.held_from_others(server_id)

    async def create(self, spec: ServerSpec) -> None:
        """Create the data of a new server, without starting it; do nothing if it already has data.

        Raise `ServerFailed` if the data cannot be created.
        """
        await self._programs.alone(spec.id, lambda: self._create(spec))

    def restoring(self, spec: ServerSpec) -> Path:
        """Return the folder that a restore is to fill; it belongs to the server's user."""
        return self._own_folder(spec, "restoring")

    async def adopt_restored(self, spec: ServerSpec) -> None:
        """Make restored files the data of a server, without starting it; do nothing if it has data.

        The files are untrusted: links, and files that configure the server, are removed.

        Raise `ServerFailed` if the files are not data of this version.
        """
        await self._programs.alone(spec.id, lambda: self._adopt(spec))

    async def recover(self, spec: ServerSpec, recovery: Recovery) -> None:
        """Let a restored server replay its WAL; take extra rights from all roles but `SUPERUSER`.

        The server listens only on its Unix socket, and has stopped when this returns. Do nothing if
        it has already recovered.

        Raise `ServerFailed`, with the end of the log, if the server ends too early.
        """
        async with self._programs.held(spec.id):
            await self._recover(spec, recovery)

    async def start(self, spec: ServerSpec) -> None:
        """Start a server, and return when it accepts connections; do nothing if it already runs.

        Raise `ServerFailed`, with the end of the log, if the server ends.
        """
        async with self._programs.held(spec.id):
            await self._recover(spec, Recovery(None, uses_archive=False))
            await self._programs.done_to(spec.id, lambda: self._begin(spec, postgres.server(spec)))
            await self._ready(spec)

    async def switch_wal(self, spec: ServerSpec) -> None:
        """Commit a transaction, and make a running server archive its WAL up to that transaction.

        Raise `ServerFailed` if the server does not answer.
        """
        await postgres.execute(
            spec, self.paths(spec), "SELECT pg_current_xact_id();\nSELECT pg_switch_wal();\n"
        )

    async def stop(self, server_id: str) -> None:
        """Stop a server by a fast shutdown, after a minute by a kill; do nothing if none runs."""
        await self._programs.alone(server_id, lambda: self._stop(server_id))

    async def remove(self, server_id: str, *, at_once: bool = False) -> None:
        """Stop a server and delete its files; its data are retained for a day unless `at_once`."""
        kept = None if at_once else self._base / data_folders.DELETED
        await self._programs.alone(server_id, lambda: self._remove(server_id, kept))

    async def set_aside(self, server_id: str) -> bool:
        """Stop a server that has no row; its data are retained until the operator deletes them.

        Return False if it has no data.
        """
        kept = self._base / data_folders.ROWLESS
        return await self._programs.alone(server_id, lambda: self._remove(server_id, kept))

    async def delete_expired(self) -> None:
        """Delete the data of clusters that were deleted more than a day ago."""
        await self._programs.run(lambda: data_folders.delete_expired(self._base))

    async def set_password(self, spec: ServerSpec, username: str, password: str) -> None:
        """Set the password of a role of a running server; the password is not logged."""
        name = username.replace('"', '""')
        verifier = await self._programs.run(lambda: postgres.verifier(password))
        await postgres.execute(
            spec, self.paths(spec), f"ALTER ROLE \"{name}\" PASSWORD '{verifier}';\n"
        )

    async def check_data(self, spec: ServerSpec) -> Proof:
        """Read all data of a server that was restored for verification; return the kind of proof.

        Raise `ServerFailed` if a checksum is wrong, or a row cannot be read.
        """
        paths = self.paths(spec)
        async with self._programs.held(spec.id):
            await self._programs.done_to(spec.id, lambda: self._stop(spec.id))
            if await postgres.has_checksums(spec, paths):
                await postgres.check_pages(spec, paths)
                return "checksums"
            await self._programs.done_to(
                spec.id, lambda: self._single(spec, "template1", postgres.ALL_CONNECT)
            )
            private = postgres.server(spec, is_private=True)
            await self._programs.done_to(spec.id, lambda: self._begin(spec, private))
            await self._ready(spec)
            await postgres.read_rows(spec, paths)
            return "rows"

    async def reload_certificate(self, spec: ServerSpec, chain_pem: str, key_pem: str) -> None:
        """Write the certificate and key of a server; a running server reloads them."""
        await self._programs.alone(spec.id, lambda: self._reload(spec, key_pem + chain_pem))

    async def seen(self) -> Mapping[str, ServerState]:
        """Map server id to state, for each server with a folder on this machine."""
        return await self._programs.run(self._seen)

    def paths(self, spec: ServerSpec) -> ServerPaths:
        """Return the folders and the user of a server, whether or not the folders exist."""
        folder = self._folder(spec.id)
        return ServerPaths(folder / "data", folder / "sockets", folder / "spool", self._user(spec))

    # The methods below run in threads, one at a time for each server.

    def _create(self, spec: ServerSpec) -> None:
        data = self._folder(spec.id) / "data"
        if data.exists():
            return
        made = self._folder(spec.id) / "making"
        data_folders.remove_tree(made)
        made = self._own_folder(spec, "making")
        self._run(spec, postgres.initdb(spec.version), data=made)
        single = postgres.single_user(spec.version, "template1")
        self._run(spec, single, data=made, text=postgres.CREATION)
        settle(made, data)

    def _adopt(self, spec: ServerSpec) -> None:
        folder = self._folder(spec.id)
        self._own_folder(spec, "spool")  # WAL is put there even before the server asks for it
        if (folder / "data").exists():
            return
        self._end(spec.id)
        try:
            data_folders.clean(folder / "restoring", spec.version)
            data_folders.ask_for_recovery(folder / "restoring", self._user(spec))
        except (OSError, RecursionError) as error:
            raise ServerFailed(f"what was restored cannot be used: {error}") from error
        (folder / _UNFIT).touch()
        settle(folder / "restoring", folder / "data")

    def _take_rights(self, spec: ServerSpec) -> None:
        """Stop a recovered server; remove rights that no role of restored data may have."""
        self._stop(spec.id)
        said = self._single(spec, "template1", data_folders.ROLES)
        catalog = data_folders.catalog_of(said)
        self._single(spec, "template1", catalog.owning)
        for each in catalog.owned:
            self._single(spec, each, data_folders.EVERYWHERE)
        (self._folder(spec.id) / _UNFIT).unlink()

    def _single(self, spec: ServerSpec, database: str, text: str) -> str:
        return self._run(spec, postgres.single_user(spec.version, database), text=text)

    def _begin(self, spec: ServerSpec, argv: Sequence[str]) -> None:
        """Start a server with the command `argv`, unless it already runs with this command.

        If it serves clients, listen for them first. Raise `ServerFailed` if it cannot be started.
        """
        folder = self._folder(spec.id)
        if not (folder / "data").exists():
            raise ServerFailed("it has no data")
        if living(folder) is not None:
            if read_json(folder / ORDER).get("server") == list(argv):
                return
            self._stop(spec.id)
        self._end(spec.id)
        data_folders.give(folder, self._user_by_port(spec))
        data_folders.before_start(folder / "data")
        if "listen_addresses=" in argv:  # it is private
            self._launch(spec, argv, folder / "data", listener=None)
            return
        try:
            listener = socket.create_server((self._listening.address, spec.port))
        except OSError as error:
            where = f"{self._listening.address}:{spec.port}"
            raise ServerFailed(f"it cannot listen on {where}: {error.strerror}") from error
        with listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._launch(spec, argv, folder / "data", listener=listener.fileno())

    def _run(
        self, spec: ServerSpec, argv: Sequence[str], *, data: Path | None = None, text: str = ""
    ) -> str:
        """Run a program on a server's data; return the output, or raise `ServerFailed`."""
        folder = self._folder(spec.id)
        process = self._launch(spec, argv, data or folder / "data", listener=None, text=text)
        ended = process.wait(_SINGLE_SECONDS)
        state = read_json(folder / STATE)
        self._end(spec.id)
        said = tail(folder, 4_000_000).decode(errors="replace")
        name = Path(argv[0]).name
        if not ended:
            raise ServerFailed(f"{name} took longer than {_SINGLE_SECONDS:.0f} seconds")
        if state.get("exit_code") != 0:
            words = state.get("problem") or postgres.why_ended(said)
            raise ServerFailed(f"{name} failed: {words}")
        return said

    def _launch(
        self,
        spec: ServerSpec,
        argv: Sequence[str],
        data: Path,
        *,
        listener: int | None,
        text: str | None = None,
    ) -> DetachedProcess:
        """Kill all processes of a server; start and return a shim.

        Its program reads `text`, or nothing. `listener` is the descriptor to accept clients at.
        """
        self._end(spec.id)
        folder, user = self._folder(spec.id), self._user(spec)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (STATE, NEWER, OLDER):
            (folder / each).unlink(missing_ok=True)
        sockets, spool = self._own_folder(spec, "sockets"), self._own_folder(spec, "spool")
        for name, content in postgres.CONF_FILES.items():
            write_file(self._conf(spec) / name, content.encode(), 0o444)
        write_file(folder / "passwd", password_line(user).encode(), 0o444)
        write_file(folder / INPUT, (text or "").encode(errors="surrogateescape"), 0o600)
        seccomp.write_program(folder / SECCOMP_FILE)
        folders = {sockets: postgres.SOCKETS_INSIDE, spool: SPOOL_INSIDE}
        if data.exists():
            folders[data] = DATA_INSIDE
        files = {self._conf(spec): postgres.CONF_INSIDE, folder / "passwd": "/etc/passwd"}
        most = postgres.most_connections(spec.memory_mb)
        try:
            parents = control_groups.delegated()
            groups = control_groups.make(
                parents,
                f"{_GROUP}{spec.id}",
                Bounds(spec.memory_mb, spec.cpu_millis, most + _PROCESSES),
            )
            shims = control_groups.make_shim_group(*parents["cpu"])
            order = {
                "server": list(argv),
                "launch": confined(
                    argv, user, folders=folders, files=files, shm_mb=max(16, spec.memory_mb // 4)
                ),
                "groups": [str(group) for group in groups],
                "shims": str(shims),
                "has_input": text is not None,
                "listener": listener,
                "port": spec.port,
                "most": most,
            }
            write_file(folder / ORDER, json.dumps(order).encode(), 0o600)
            return detached_process.start(
                folder,
                shim_command(_SHIM, () if user is not None else _OWN_USERS),
                env={"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=() if listener is None else (listener,),
            )
        except (GroupsMissing, OSError, LaunchFailed) as error:
            raise ServerFailed(str(error)) from error

    async def _recover(self, spec: ServerSpec, recovery: Recovery) -> None:
        if await self._programs.run((self._folder(spec.id) / _UNFIT).exists):
            private = postgres.server(spec, recovery, is_private=True)
            await self._programs.done_to(spec.id, lambda: self._begin(spec, private))
            await self._ready(spec)
            await self._programs.done_to(spec.id, lambda: self._take_rights(spec))

    async def _ready(self, spec: ServerSpec) -> None:
        """Wait until a server accepts connections; raise `ServerFailed` if it ends."""
        folder, pause = self._folder(spec.id), _LOOK_SECONDS
        while not await self._programs.run(lambda: self._is_ready(folder)):
            await asyncio.sleep(pause)
            pause = min(1.1 * pause, _LONGEST_LOOK_SECONDS)  # a recovery may take hours

    def _is_ready(self, folder: Path) -> bool:
        if detached_process.find(folder) is None:
            raise ServerFailed(self._words(folder))
        return data_folders.status_of(folder / "data") == "ready"

    def _words(self, folder: Path) -> str:
        state = read_json(folder / STATE)
        said = postgres.why_ended(tail(folder, _TOLD_BYTES).decode(errors="replace"))
        return str(state.get("problem") or said or "it was killed")

    def _reload(self, spec: ServerSpec, pem: str) -> None:
        path, folder = self._conf(spec) / postgres.CERTIFICATE, self._folder(spec.id)
        write_file(path, pem.encode(), 0o400, owner=self._user(spec))
        if (process := living(folder)) is not None:
            with suppress(NoAnswer, OSError):  # it reads the file when it starts
                ask(folder, process, "reload", _ASK_SECONDS)

    def _stop(self, server_id: str) -> None:
        stop(self._folder(server_id), _FAST_SECONDS)
        self._end(server_id)

    def _end(self, server_id: str) -> None:
        """Kill all processes of a server, and remove its control groups."""
        if not kill(self._folder(server_id)):
            raise ServerFailed("its shim does not end")
        try:
            control_groups.remove(control_groups.existing(f"{_GROUP}{server_id}"))
        except OSError as error:
            raise ServerFailed(f"its processes do not end: {error}") from error

    def _remove(self, server_id: str, kept: Path | None) -> bool:
        folder = self._folder(server_id)
        self._stop(server_id)
        is_kept = kept is not None and data_folders.keep(folder, kept)
        data_folders.remove_tree(folder)
        self._sizes.pop(server_id, None)
        return is_kept

    def _seen(self) -> Mapping[str, ServerState]:
        try:
            entries = [*self._base.iterdir()]
        except FileNotFoundError:
            return {}
        found = [each for each in entries if each.is_dir() and not each.name.startswith(".")]
        return {each.name: self._seen_one(each) for each in found}

    def _seen_one(self, folder: Path) -> ServerState:
        data = folder / "data"
        if not data.exists():
            return ServerState("missing")
        size = self._size(folder)
        certified_at = _written_at(folder / "conf" / postgres.CERTIFICATE)
        if detached_process.find(folder) is None:
            return ServerState("stopped", self._words(folder), size, certified_at)
        is_ready = not (folder / _UNFIT).exists() and data_folders.status_of(data) == "ready"
        return ServerState("running" if is_ready else "starting", "", size, certified_at)

    def _size(self, folder: Path) -> int:
        measure_at, size = self._sizes.get(folder.name, (float("-inf"), 0))
        begun = time.monotonic()
        if begun > measure_at:
            size = data_folders.size_of(folder) or size
            now = time.monotonic()
            # Measuring walks over all files: that may take a hundredth of the time at most.
            self._sizes[folder.name] = now + max(_MEASURED_SECONDS, 100 * (now - begun)), size
        return size

    def _folder(self, server_id: str) -> Path:
        return self._base / server_id

    def _user(self, spec: ServerSpec) -> User:
        return data_folders.owner_of(self._folder(spec.id) / "data", self._user_by_port(spec))

    def _user_by_port(self, spec: ServerSpec) -> User:
        return user_of(self._listening.first_uid, spec.port - self._listening.first_port)

    def _conf(self, spec: ServerSpec) -> Path:
        path = self._folder(spec.id) / "conf"
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.chmod(0o755)
        return path

    def _own_folder(self, spec: ServerSpec, name: str) -> Path:
        """Make and return a subfolder that the server's user owns."""
        path, user = self._folder(spec.id) / name, self._user(spec)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if user is not None:
            os.chown(path, *user, follow_symlinks=False)
        return path


def _written_at(path: Path) -> int:
    """Return when a file was last written, in microseconds since the epoch; 0 if it is absent."""
    try:
        return path.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return 0
