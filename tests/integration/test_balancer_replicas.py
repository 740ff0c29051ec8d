"""Replicas of load balancers by both drivers: no request fails that need not, and nothing stays."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from cloudcore.loadbalancer.driver import HealthPlan, ListenerPlan, ProxyFailed, ProxyPlan
from cloudcore.loadbalancer.embedded import EmbeddedDriver
from cloudcore.nodes import detached_process
from tests.balanced import BALANCER, Balanced, Loop, Server, balanced, kind_of
from tests.certificates import self_signed
from tests.waiting import until_so

HTTPS = (ListenerPlan(8443, "https", "web", "own.pem"), ListenerPlan(8080, "http", "web"))
TCP = (ListenerPlan(9000, "tcp", "web"),)


@pytest.fixture
async def first() -> AsyncIterator[Server]:
    server = await Server("first").start()
    yield server
    await server.die()


@pytest.fixture
async def second() -> AsyncIterator[Server]:
    server = await Server("second").start()
    yield server
    await server.die()


@pytest.fixture(params=["embedded", "haproxy"])
async def balancer(
    request: pytest.FixtureRequest, first: Server, second: Server, tmp_path: Path
) -> AsyncIterator[Balanced]:
    """Return a balancer, which ends before its servers: it checks them until then."""
    async with balanced(tmp_path, request.param, head_seconds=1) as made:
        yield made


def pem_of(folder: Path, name: str) -> tuple[bytes, ssl.SSLContext]:
    """Return a new certificate with its key, and what trusts it alone."""
    folder.mkdir()
    certificate, key = self_signed(folder, name)
    return certificate.read_bytes() + key.read_bytes(), ssl.create_default_context(
        cafile=str(certificate)
    )


async def test_no_request_fails_through_reloads_a_renewal_and_the_death_of_a_target(
    balancer: Balanced, first: Server, second: Server, tmp_path: Path
) -> None:
    old, old_trust = pem_of(tmp_path / "old", "old.example.com")
    new, new_trust = pem_of(tmp_path / "new", "new.example.com")
    plan = balancer.plan(first, second, listeners=HTTPS)
    await balancer.apply(plan, certificates={"own.pem": old})
    both = ssl.create_default_context()
    for name in ("old", "new"):
        both.load_verify_locations(tmp_path / name / "certificate.pem")
    slow = await balancer.ask_slowly(port=8443, tls=old_trust)
    async with Loop(partial(balancer.ask, port=8443, tls=both)) as loop:
        await loop.more()
        wider = balancer.plan(first, second, listeners=(*HTTPS, ListenerPlan(8081, "http", "web")))
        for wanted in (wider, plan, wider, plan):
            await balancer.apply(wanted, certificates={"own.pem": old})
            await loop.more()
        await balancer.apply(plan, certificates={"own.pem": new})
        await loop.more()
        renewed = await balancer.ask(port=8443, tls=new_trust)  # which trusts no other
        assert renewed.status == 200
        first_answers = loop.served.count(b"first")
        assert 0 < first_answers < len(loop.served)
        # The other one has the slow request, or the connection would be the target's to end.
        dying, living = (second, first) if first.is_waited_for.is_set() else (first, second)
        await dying.die()
        await loop.more()
        living.go.set()
        assert (await slow.read()).status == 200  # over all reloads
        await dying.start()
        await balancer.until(lambda seen: set(seen[0].targets.values()) == {"healthy"})
        await loop.more()
    slow.writer.close()
    assert loop.failed == []
    assert dying.name.encode() in loop.served[-40:]


async def test_an_unhealthy_target_gets_nothing_until_it_is_healthy_again(
    balancer: Balanced, first: Server, second: Server
) -> None:
    await balancer.apply(balancer.plan(first, second))

    async def served() -> set[bytes]:
        answers = [await balancer.ask() for _ in range(6)]
        assert {answer.status for answer in answers} == {200}
        return {answer.body for answer in answers}

    assert await served() == {b"first", b"second"}
    first.is_well = False
    await balancer.until(lambda seen: seen[0].targets["web", "first"] == "unhealthy")
    assert await served() == {b"second"}
    first.is_well = True
    await balancer.until(lambda seen: seen[0].targets["web", "first"] == "healthy")
    assert await served() == {b"first", b"second"}
    checks = {head.split(b"\r\n")[0] for head in first.heads if head.startswith(b"GET /health")}
    assert checks == {b"GET /health?a=%20$b'c HTTP/1.1"}


async def test_a_draining_target_keeps_what_it_has_and_gets_nothing_more(
    balancer: Balanced, first: Server, second: Server
) -> None:
    await balancer.apply(balancer.plan(first))
    slow = await balancer.ask_slowly(first)
    await balancer.apply(balancer.plan(first, second, draining=[first]))
    (seen,) = await balancer.seen()
    assert seen.targets["web", "first"] == "draining"
    before = len(first.requests)
    assert {(await balancer.ask()).body for _ in range(6)} == {b"second"}
    assert len(first.requests) == before
    first.go.set()
    assert (await slow.read()).body == b"first"
    slow.writer.close()


def has_ended(process: int) -> bool:
    """Return True if a process is gone, or a zombie (proc(5))."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_two_replicas_share_a_port_and_one_dies(
    balancer: Balanced, first: Server, second: Server
) -> None:
    plan = balancer.plan(first, second)
    await balancer.apply(plan, 0, 1)
    for _ in range(50):
        assert (await balancer.ask()).status == 200
    seen = await balancer.seen()
    assert [one.replica for one in seen] == [0, 1]
    assert all(one.metrics.connections > 0 for one in seen)
    # A connection is counted when it has ended, which is after its answer.
    await balancer.until(
        lambda seen: (
            sum(one.metrics.requests for one in seen) == 50
            and sum(one.metrics.answers["2xx"] for one in seen) == 50
            and all(one.metrics.bytes_in > 0 and one.metrics.bytes_out > 0 for one in seen)
        )
    )

    # No request is on its way when one is killed; those after it find the other.
    kept = detached_process.find(balancer.folder / BALANCER / "0")
    assert kept is not None
    before = balancer.processes()
    kept.signal(signal.SIGKILL)
    await balancer.until(lambda seen: not seen[0].is_alive)
    of_one = 1 if isinstance(balancer.driver, EmbeddedDriver) else 2
    await until_so(lambda: len(balancer.processes()) == of_one, balancer.processes)
    # Only then its sockets are closed for sure.
    await until_so(lambda: all(map(has_ended, {*before} - {*balancer.processes()})), "it runs on")
    for _ in range(50):
        assert (await balancer.ask()).status == 200
    await balancer.apply(plan, 0)
    assert [one.is_alive for one in await balancer.seen()] == [True, True]


async def test_nothing_is_left_after_a_stop(
    balancer: Balanced, first: Server, tmp_path: Path
) -> None:
    pem, _ = pem_of(tmp_path / "own", "own.example.com")
    plan = balancer.plan(first, listeners=HTTPS)
    for _ in range(2):
        await balancer.apply(plan, 0, 1, certificates={"own.pem": pem})
        assert await balancer.driver.known() == [BALANCER]
        assert balancer.processes()
    secrets = [
        file
        for file in balancer.folder.rglob("*")
        if file.is_file() and b"PRIVATE KEY" in file.read_bytes()
    ]
    assert secrets
    assert {file.stat().st_mode & 0o777 for file in secrets} == {0o600}
    await balancer.stop(0)
    assert [seen.replica for seen in await balancer.seen()] == [1]
    await balancer.stop(1, 0, 7)
    assert await balancer.driver.known() == []
    assert await balancer.seen() == []
    assert list(balancer.folder.iterdir()) == []
    assert balancer.processes() == []
    for port in (8080, 8443):
        with socket.socket() as free:
            free.bind((balancer.vip, port))


async def test_a_stop_lets_requests_finish(
    balancer: Balanced, first: Server, second: Server
) -> None:
    await balancer.apply(balancer.plan(first), 0)
    idle = await balancer.connect()
    assert (await idle.ask()).status == 200
    slow = await balancer.ask_slowly(first)
    stopping = asyncio.create_task(balancer.stop(0))
    await until_so(lambda: _refuses(balancer.vip), "it takes new connections")
    last = await idle.ask()  # of a client that does not know
    assert last.status == 200
    assert b"connection: close" in last.head.lower()
    first.go.set()
    assert (await slow.read()).body == b"first"
    await stopping
    assert balancer.processes() == []


async def test_a_stop_cuts_what_does_not_end(
    balancer: Balanced, first: Server, second: Server
) -> None:
    balancer.driver = type(balancer.driver)(balancer.folder, drain_seconds=1)
    stuck = []
    for server in (first, second):  # the second plan is a second worker, beside the first's
        await balancer.apply(balancer.plan(server))
        stuck.append(await balancer.ask_slowly(server))
    await balancer.stop(0)
    assert [await client.rest() for client in stuck] == [b"", b""]
    assert balancer.processes() == []
    assert list(balancer.folder.iterdir()) == []


def _refuses(address: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex((address, 8080)) != 0


async def test_what_cannot_be_done_is_told_and_what_ran_goes_on(
    balancer: Balanced, first: Server, tmp_path: Path
) -> None:
    plan = balancer.plan(first)
    await balancer.apply(plan)
    with socket.socket() as taken:
        taken.bind((balancer.vip, 8081))
        taken.listen()
        wider = balancer.plan(first, listeners=(*plan.listeners, ListenerPlan(8081, "http", "web")))
        with pytest.raises(ProxyFailed, match="8081"):
            await balancer.apply(wider)
        assert (await balancer.ask()).status == 200
    await balancer.apply(wider)
    assert (await balancer.ask(port=8081)).status == 200
    secure = balancer.plan(first, listeners=HTTPS)
    with pytest.raises(ProxyFailed, match=r"own\.pem"):
        await balancer.apply(secure)
    pem, _ = pem_of(tmp_path / "own", "own.example.com")
    with pytest.raises(ProxyFailed):
        await balancer.apply(secure, certificates={"own.pem": pem.replace(b"KEY-----\n", b"KEY-")})
    # A new replica that cannot start leaves nothing that is not known.
    elsewhere = ProxyPlan(BALANCER, "192.0.2.1", plan.listeners, plan.backends)
    with pytest.raises(ProxyFailed, match=r"192\.0\.2\.1"):
        await balancer.apply(elsewhere, 3)
    assert [seen.is_alive for seen in await balancer.seen()] == [True, False]


async def test_the_operator_may_choose_the_other_driver(first: Server, tmp_path: Path) -> None:
    async with balanced(tmp_path, "embedded") as balancer:
        for name in ("embedded", "haproxy", "embedded"):
            balancer.driver = kind_of(name)(balancer.folder)
            await balancer.apply(balancer.plan(first))
            programs = {balancer.program(process) for process in balancer.processes()}
            assert all(("haproxy" in program) == (name == "haproxy") for program in programs)
            assert len(programs) == 1


async def test_targets_behind_unix_sockets_are_dialled_however_long_their_paths(
    balancer: Balanced, tmp_path: Path
) -> None:
    near = tmp_path / "8080"
    server = await Server("own").start(near)
    server.path = tmp_path / f"{'long ' * 40}'${{HOME}}" / "8080"
    server.path.parent.mkdir()
    near.rename(server.path)
    await balancer.apply(balancer.plan(server))
    assert (await balancer.ask()).body == b"own"
    await balancer.until(lambda seen: seen[0].targets["web", "own"] == "healthy")
    await balancer.apply(balancer.plan())
    assert list((balancer.folder / BALANCER / "0" / "sockets").iterdir()) == []
    await server.die()


async def test_streams_go_through_in_both_directions_and_end_one_by_one(
    balancer: Balanced,
) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = await reader.read()  # until the client has ended its direction
        writer.write(whole[::-1])
        await writer.drain()

    server = await Server("echo", echo).start()
    dead = await Server("dead").start()
    health = HealthPlan("tcp", None, 1, 1, 1, 100)
    await balancer.apply(balancer.plan(dead, server, listeners=TCP, health=health))
    await balancer.until(lambda seen: set(seen[0].targets.values()) == {"healthy"})
    await dead.die()
    large = os.urandom(1_000_000)
    # Whose turn it is may be that of the dead one, which is not found out yet.
    for sent in (*[b"ab"] * 4, large):
        client = await balancer.connect(9000)
        client.writer.write(sent)
        client.writer.write_eof()
        assert await client.rest() == sent[::-1]
        client.writer.close()
    await balancer.until(lambda seen: seen[0].metrics.bytes_out >= len(large))
    (seen,) = await balancer.seen()
    assert seen.metrics.bytes_in >= len(large)
    await balancer.until(lambda seen: seen[0].targets["web", "echo"] == "healthy")
    await server.die()


async def test_a_post_is_sent_once_and_a_get_until_a_target_answers(balancer: Balanced) -> None:
    taken: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"GET /health"):
            taken.append(head[:4])
        else:
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    mute, well = await Server("mute", hang_up).start(), await Server("well").start()
    await balancer.apply(balancer.plan(mute, well))
    statuses = []
    for _ in range(4):
        assert [(await balancer.ask()).body for _ in range(2)] == [b"well"] * 2
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
        statuses.append((await balancer.ask(post)).status)
    posted = [head for head in well.requests if head.startswith(b"POST")]
    assert statuses.count(502) == taken.count(b"POST")
    assert len(posted) + taken.count(b"POST") == 4
    assert b"GET " in taken
    await well.die()
    await mute.die()
