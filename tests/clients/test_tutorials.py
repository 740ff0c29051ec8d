"""The tutorials are done by their own commands, and nothing is left of them on the machine."""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cloudcore.network.drivers import namespaces
from cloudcore.network.drivers.links import open_links
from cloudcore.network.drivers.namespaces import FOLDER, set_sysctl, within
from cloudcore.network.drivers.nft_check import can_check
from tests.clients.containers import Containers
from tests.clients.docs_shell import Shell, commands_of, shell, substituted, write_program
from tests.clients.journey_world import Operator, operated
from tests.databases import program_environment
from tests.entrepot import told
from tests.loaded import ENTREPOT, script_line
from tests.network_lab import thread_in
from tests.tools import missing, require_tool

pytestmark = [pytest.mark.client("podman"), pytest.mark.timeout(300)]

PAGE: Final = "docs/tutorials/run-what-you-push.md"
TOOLS: Final = ("curl", "haproxy", "jq", "nft", "podman", "runc")
VIPS: Final = "198.51.100.0/28"
ROLLS: Final = "entrepot instance-pools update"
ROLLED: Final = '.image == "shop:2"'


@dataclass
class Receiver:
    """A webhook: what it got."""

    url: str = ""
    got: list[dict[str, Any]] = field(default_factory=list)
    is_asked: threading.Event = field(default_factory=threading.Event)
    is_pushed: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def machine() -> Iterator[Path]:
    """Put this test on a machine of its own: a network namespace that forwards."""
    for name in TOOLS:
        require_tool(name)
    if os.geteuid() != 0 or not can_check():
        missing("root, network namespaces and nftables")
    own = FOLDER / f"tutorial-{secrets.token_hex(6)}"
    namespaces.ensure(own)
    try:
        within(own, _set_up)
        with thread_in(own):
            yield own
    finally:
        namespaces.remove(own)


def _set_up() -> None:
    for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        set_sysctl(name, 1)
    with open_links() as links:
        links.set_loopback(set())
    subprocess.run(["ip", "address", "add", "192.0.2.10/32", "dev", "lo"], check=True)


@pytest.fixture
def receiver(machine: Path) -> Iterator[Receiver]:
    """Return a webhook on the machine."""
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made.got.append(body)
            made.is_asked.set()
            if "registry.image.pushed" in json.dumps(body):
                made.is_pushed.set()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Be silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


@pytest.fixture
def reader(tmp_path: Path, receiver: Receiver) -> Iterator[tuple[Operator, Shell]]:
    """Return an install with all drivers, and somebody who types what the tutorial says."""
    settings = {
        "ENTREPOT_NETWORK_DRIVER": "nftables",
        "ENTREPOT_BALANCER_DRIVER": "haproxy",
        "ENTREPOT_BALANCER_VIPS": VIPS,
        "ENTREPOT_COMPUTE_DRIVER": "runc",
        "ENTREPOT_CERTIFICATE_GRANTS": "corp.example=acme",
        "ENTREPOT_WEBHOOK_ALLOWED": receiver.url,
    }
    with ExitStack() as stack:
        operator = stack.enter_context(operated(tmp_path, **settings))
        clients = Containers(tmp_path / "home", operator.host)
        programs = tmp_path / "programs"
        write_program(programs, "entrepot", script_line(ENTREPOT))
        environment = {
            **{k: v for k, v in program_environment().items() if not k.startswith("ENTREPOT_")},
            **clients.environment,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        yield operator, stack.enter_context(shell(tmp_path, environment))


@dataclass
class Load:
    """Requests, one after the other."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)


@contextmanager
def _load(typed: Shell) -> Iterator[Load]:
    """Ask for the page again and again, each time by a connection of its own."""
    made, is_over = Load(), threading.Event()
    trusted = ssl.create_default_context(cafile=typed.folder / "work" / "root.pem")
    vip = typed.run("echo $vip").strip()

    def ask() -> bytes:
        with (
            socket.create_connection((vip, 443), timeout=20) as plain,
            trusted.wrap_socket(plain, server_hostname="shop.corp.example") as connection,
        ):
            connection.sendall(b"GET / HTTP/1.0\r\nHost: shop.corp.example\r\n\r\n")
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def go_on() -> None:
        while not is_over.wait(0.02):  # the processors are those of what rolls, too
            try:
                got = ask()
            except OSError as error:
                made.failed.append(repr(error))
                continue
            made.answered += 1
            if b" 200 OK" not in got or not got.endswith((b"version 1\n", b"version 2\n")):
                made.failed.append(got.decode())

    asking = threading.Thread(target=go_on)
    asking.start()
    try:
        yield made
    finally:
        is_over.set()
        asking.join()


def _be_told_of_pushes(operator: Operator, key: tuple[str, str], receiver: Receiver) -> None:
    """Subscribe the webhook to what is pushed, and confirm that it is ours."""
    with httpx.Client(base_url=operator.url, timeout=30) as http:
        granted = http.post("/v1/oauth/token", data={"grant_type": "client_credentials"}, auth=key)
        http.headers["Authorization"] = f"Bearer {granted.json()['access_token']}"

        def make(path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401
            answer = http.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        topic = make("/v1/topics", {"name": "pushes"})["topic"]
        endpoint = {"protocol": "http", "endpoint": receiver.url}
        make(f"/v1/topics/{topic['id']}/subscriptions", endpoint)
        make("/v1/event-rules", {"event_types": ["registry.image.*"], "topic": "pushes"})
        assert receiver.is_asked.wait(20)
        make("/v1/subscription-confirmations", {"token": receiver.got[0]["token"]})


def _things(data: Path) -> dict[str, list[str]]:
    """Return what there is of networks, balancers and instances on the machine."""
    folders = [each for each in data.glob("nodes/*/*") if each.is_dir() and each.name != "layers"]
    made = [each for folder in folders for each in folder.iterdir()]
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            place = (process / "cwd").readlink()
            if place.is_relative_to(data / "nodes"):
                running.append((process / "cmdline").read_text())
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "files": [str(each) for each in made if not each.name.endswith("lock")],
        "processes": running,
        "mounts": [line for line in mounts if str(data) in line],
        "links": _said("ip", "-o", "link").splitlines(),
        "routes": _said("ip", "route").splitlines(),
        "rules": _said("nft", "list", "ruleset").splitlines(),
    }


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_run_what_you_push(reader: tuple[Operator, Shell], receiver: Receiver) -> None:
    operator, typed = reader
    before = _things(operator.data)
    key = told("access key id", operator.made), told("secret access key", operator.made)
    words = [
        ("https://registry.example.com", operator.url),
        ("registry.example.com", operator.host),
        ("AK...", key[0]),
    ]
    said: list[tuple[str, str]] = []
    with ExitStack() as asking:
        for command in commands_of(PAGE):
            secret = f"{key[1]}\n" if "login" in command else ""
            if command.startswith(ROLLS):
                load = asking.enter_context(_load(typed))
            said.append((command, typed.run(substituted(command, words), secret)))
            if "login" in command:
                _be_told_of_pushes(operator, key, receiver)
            if ROLLED in command:
                asking.close()
                assert load.failed == []
                assert load.answered > 20
    pages = [text for command, text in said if command.startswith("curl")]
    assert pages == ["version 1\n", "version 2\n"]
    assert receiver.is_pushed.wait(20)
    assert "registry" in dict(said)["entrepot usage --from 1d"]
    assert _things(operator.data) == before
