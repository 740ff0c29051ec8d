"""The service is killed between any two steps: what runs is known, goes on, and can be ended."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import ssl
from pathlib import Path

import pytest

from tests.balanced import Balanced, balanced
from tests.certificates import self_signed
from tests.fault.balancer_to_death import BALANCER, CERTIFICATE, plan_of
from tests.loaded import program_environment, run_loaded


async def dies(driver: str, folder: Path, vip: str, step: int, act: str) -> bool:
    """Return True if it was killed; False if it had fewer steps."""
    words = driver, str(folder), vip, str(step), act
    module, env = "tests.fault.balancer_to_death", program_environment()
    ended = await asyncio.to_thread(run_loaded, module, words, env)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


def answers(vip: str, port: int, trust: ssl.SSLContext) -> bool:
    with (
        socket.create_connection((vip, port)) as opened,
        trust.wrap_socket(opened, server_hostname="localhost"),
    ):
        return True


@pytest.mark.parametrize("driver", ["embedded", "haproxy"])
@pytest.mark.timeout(300)
async def test_a_death_between_any_two_steps_leaves_nothing_unknown(
    driver: str, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path, "own.example.com")
    pem = certificate.read_bytes() + key.read_bytes()
    (tmp_path / CERTIFICATE).write_bytes(pem)
    trust = ssl.create_default_context(cafile=str(certificate))
    async with balanced(tmp_path, driver) as balancer:
        for act in ("start", "reload", "stop"):
            for step in itertools.count(1):
                await _prepare(balancer, act, pem)
                if not await dies(driver, tmp_path, balancer.vip, step, act):
                    break
                await _is_known(balancer)
                if act == "reload":  # what ran before goes on
                    assert await asyncio.to_thread(answers, balancer.vip, 8080, trust)
                if act != "stop":
                    await balancer.apply(
                        plan_of(balancer.vip, 8080, 8081), certificates={CERTIFICATE: pem}
                    )
                    assert await asyncio.to_thread(answers, balancer.vip, 8081, trust)
                await _leaves_nothing(balancer)
            assert step > (2 if driver == "haproxy" else 1)


async def _prepare(balancer: Balanced, act: str, pem: bytes) -> None:
    if act != "start":
        await balancer.apply(plan_of(balancer.vip, 8080), certificates={CERTIFICATE: pem})


async def _is_known(balancer: Balanced) -> None:
    if balancer.processes():
        assert await balancer.driver.known() == [BALANCER]
        assert [seen.replica for seen in await balancer.seen()] == [0]


async def _leaves_nothing(balancer: Balanced) -> None:
    await balancer.stop(0)
    assert balancer.processes() == []
    assert await balancer.driver.known() == []
    if balancer.folder.exists():
        assert list(balancer.folder.iterdir()) == []
