"""The program of the embedded proxy is light: there are many of it on a machine."""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cloudcore.loadbalancer import haproxy
from cloudcore.loadbalancer.embedded import EmbeddedDriver
from cloudcore.loadbalancer.haproxy import HaproxyDriver
from cloudcore.loadbalancer.proxy.program import Listener, channel_of
from cloudcore.nodes.node import DriverUnusable

LIST = """
import sys
import cloudcore.loadbalancer.proxy.program
for name in sys.modules:
    print(name)
"""


def test_it_imports_the_standard_library_alone() -> None:
    listed = subprocess.run(
        (sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {sys.path!r}; {LIST}"),
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split()
    assert "cloudcore.loadbalancer.proxy.relay" in listed
    others = {name for name in listed if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in others if not name.startswith("cloudcore")} == {"__main__"} & others
    assert {name for name in others if name.startswith("cloudcore")} == {
        "cloudcore",
        "cloudcore.loadbalancer",
        "cloudcore.loadbalancer.proxy",
        "cloudcore.loadbalancer.proxy.heads",
        "cloudcore.loadbalancer.proxy.program",
        "cloudcore.loadbalancer.proxy.relay",
        "cloudcore.loadbalancer.proxy.targets",
    }


async def test_small_parts_are_sent_at_once() -> None:
    listener = Listener("127.0.0.1", 0)
    with socket.create_connection(listener.socket.getsockname()):
        await asyncio.get_running_loop().run_in_executor(
            None, select.select, [listener.socket], [], []
        )
        ((accepted, address),) = listener.accept(5)
        assert address == "127.0.0.1"
        channel = await channel_of(accepted, None)
        sent = channel.writer.get_extra_info("socket")
        assert sent.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        channel.close()
        await channel.writer.wait_closed()
    listener.socket.close()


def test_haproxy_is_missed_or_too_old_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "haproxy"
    monkeypatch.setattr(haproxy, "PROGRAM_PATH", str(tmp_path))
    driver = HaproxyDriver(tmp_path)
    with pytest.raises(DriverUnusable, match="there is no program"):
        driver.check()
    for version, is_enough in (("2.5.9", False), ("2.6.12-1", True), ("3.0.1", True)):
        program.write_text(f"#!/bin/sh\necho 'HAProxy version {version} 2026/10/17'\n")
        program.chmod(0o755)
        if is_enough:
            driver.check()
        else:
            with pytest.raises(DriverUnusable, match="or newer"):
                driver.check()
    EmbeddedDriver(tmp_path).check()
