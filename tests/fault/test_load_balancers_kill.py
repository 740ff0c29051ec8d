"""Workers killed between any two steps of a load balancer's work, and within each (L2).

What they leave behind is real: processes that serve, files, rows. Another worker goes on, a client
at the address is always answered once it was, and at the end nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import func, select

from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import policies, roles
from cloudcore.loadbalancer import balancers, bodies, rows
from cloudcore.loadbalancer.load_balancer import LoadBalancer
from cloudcore.loadbalancer.rows import ROWS
from tests.balancers import NODE, furnish
from tests.control_plane import ACCOUNT
from tests.databases import on_both_databases
from tests.fault.balancer_worker import PORT, Machine, needs_of, worker
from tests.fault.certificate_worker import Death
from tests.fault.deaths import be_killed
from tests.jobs import end_leases, running, until
from tests.postgresql import free_port

END: Final = f"end of loadbalancer.work@{NODE}"
CREATION: Final = ("attach done", "apply 1 done", "apply 2 done", END)
TEARDOWN: Final = ("detach done", "stop 1", "stop 4 done", END)
"""Where a worker dies; `test_load_balancer_deaths` has every step."""


def may(_action: str) -> Callable[[str], None]:
    return lambda _crn: None


_ROLES: Final = Statement(select(func.count()).select_from(roles))
_POLICIES: Final = Statement(select(func.count()).select_from(policies))


@asynccontextmanager
async def instance(folder: Path) -> AsyncIterator[None]:
    """Answer for the one instance of the pool, at its socket."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, folder / str(PORT))
    try:
        yield
    finally:
        server.close()


class Client:
    """Asks at the address again and again, and counts what failed."""

    def __init__(self, vip: str, port: int) -> None:
        self._at = vip, port
        self.answered = 0
        self.failed: list[object] = []

    async def ask(self) -> bool:
        """Return True if the instance has answered."""
        try:
            reader, writer = await asyncio.open_connection(*self._at)
        except OSError:
            return False
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n")
            return (await reader.read()).endswith(b"hello")
        except OSError:
            return False
        finally:
            writer.close()

    @asynccontextmanager
    async def loop(self) -> AsyncIterator[None]:
        """Ask all the time, and count."""

        async def ask_on() -> None:
            while True:
                if await self.ask():
                    self.answered += 1
                else:
                    self.failed.append(self._at)
                await asyncio.sleep(0.01)  # the processors are those of the workers, too

        task = asyncio.create_task(ask_on())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def new_balancer(database: Database, machine: Machine, port: int) -> LoadBalancer:
    """Let a load balancer before the pool be made."""
    needs, now = needs_of(database, machine, Death("")), system_clock()
    given = bodies.GivenBackend(
        name="web",
        protocol="http",
        targets=[bodies.GivenTarget(pool="workers", port=PORT)],
    )
    named = {
        "listeners": bodies.read_listeners(
            [bodies.GivenListener(port=port, protocol="http", backend="web")]
        ),
        "backends": bodies.read_backends([given]),
        "security_groups": (),
    }
    new = LoadBalancer(
        id=uuid7(now),
        account_id=ACCOUNT,
        region="local",
        created_at=now,
        updated_at=now,
        name="front",
    )
    return await database.write(balancers.create, new, "app", named, needs.parts, may)


def left(tx: Connection) -> list[object]:
    """Return what is left of load balancers in the database."""
    numbers = [row[0] for each in (_ROLES, _POLICIES) for row in tx.rows(each)]
    return [*rows.taken_vips(tx), *ROWS.list(tx, ACCOUNT, "local", ["", ""], "", 10), *numbers]


@on_both_databases
@pytest.mark.timeout(180)
async def test_a_worker_killed_at_any_step_loses_and_leaves_nothing(
    database: Database, metadata_url: str, tmp_path: Path
) -> None:
    # What SQLite shows of the steps, PostgreSQL would show again; of the ends it is its own.
    is_all = metadata_url.startswith("sqlite")
    places = list(zip(CREATION, TEARDOWN, strict=True)) if is_all else [(END, END)]
    await database.write(furnish, system_clock())
    folder = tmp_path / "m"
    (folder / "ports").mkdir(parents=True)
    machine = Machine(folder, "127.0.90.64/30")

    async def kill_at(place: str) -> None:
        await be_killed(
            place, "tests.fault.balancer_worker", metadata_url, str(folder), machine.vips
        )
        await asyncio.to_thread(end_leases, metadata_url)

    def change(tx: Connection, made: LoadBalancer, count: int) -> None:
        parts, now = needs_of(database, machine, Death("")).parts, system_clock()
        balancers.update(tx, made, {"replica_count": count}, parts, may, now)

    async def reach(made: LoadBalancer, status: str | None) -> None:
        async def is_there() -> bool:
            found = await database.read(ROWS.find, ACCOUNT, made.id)
            return (found and found.status) == status

        async with running(worker(database, machine)):
            await until(is_there)

    async with instance(folder / "ports"):
        for creation, teardown in places:
            port = free_port()
            made = await new_balancer(database, machine, port)
            client = Client(made.vip, port)
            await kill_at(creation)
            # Its proxies outlive it.
            assert await client.ask() is creation.endswith(("1 done", "2 done"))
            await reach(made, "active")
            await until(client.ask)
            if creation == CREATION[0]:
                async with client.loop():
                    await database.write(change, made, 3)
                    await kill_at("apply 2")
                    await reach(made, "active")
                    numbers = [each.replica for each in await machine.proxies.seen(made.id)]
                assert (numbers, client.failed) == ([1, 2, 3], [])
                assert client.answered > 0
            await database.write(balancers.delete, made, system_clock())
            await kill_at(teardown)
            half = await database.read(ROWS.find, ACCOUNT, made.id)
            assert half is not None
            assert half.status == "deleting"
            await reach(made, None)
            assert await client.ask() is False
            assert await machine.proxies.known() == []
            assert list((folder / "network" / "vips").iterdir()) == []
            assert await database.read(left) == [0, 0]
