"""Instance pools of a served install: the service is killed between steps, and goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.busybox_images import busybox_image, push_as
from tests.live import LiveRegistry, start_registry
from tests.live_signed_in import Tenant, serving
from tests.tools import missing, require_tool
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

PORT: Final = 8080
NOBODY: Final = 65_534
# A first process ignores SIGTERM unless it asks for it: a stop would take its whole grace.
SERVE: Final = f"echo up as $WHO; trap exit TERM; httpd -f -p {PORT} -h /srv & wait"
TRUST: Final = {"effect": "allow", "principals": ["crn:iam:::service/compute"]}
MAY_PULL: Final = {
    "effect": "allow",
    "actions": [
        "registry:DescribeRepositories",
        "registry:GetAuthorizationToken",
        "registry:PullImage",
    ],
    "resources": ["*"],
}


@dataclass
class Install:
    """A served install whose process is killed and started again."""

    data: Path
    url: str
    acme: Tenant
    registry: LiveRegistry
    settings: dict[str, str]
    groups: list[Path] = field(default_factory=list)
    """Control groups that a service without root has been given; then it is nobody's."""

    @property
    def driver(self) -> str:
        return self.settings["ENTREPOT_COMPUTE_DRIVER"]

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Call the control plane."""
        return httpx.request(
            method, self.url + path, headers=self.acme.headers, json=body, timeout=30
        )

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Call the control plane and return its answer, which must be a success."""
        answer = self.ask(method, path, body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def kill(self) -> None:
        """Kill the service with all its processes, and begin it anew."""
        for pid in family_of(self.registry.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.registry.process.wait()
        self.start()

    def start(self) -> None:
        """Begin the service on its port."""
        nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
        popen = {**nobody, "umask": 0o077, "preexec_fn": self._enter} if self.groups else None
        options = ("--port", self.url.rpartition(":")[2])
        made = start_registry(self.data, *options, command="serve", env=self.settings, popen=popen)
        self.registry.process, self.registry.reader = made.process, made.reader
        self.registry.lines = made.lines

    def _enter(self) -> None:
        for group in self.groups:
            (group / "cgroup.procs").write_text("0")

    @property
    def instances(self) -> Path:
        """Return the folder of the instances of this machine."""
        (node,) = (self.data / "nodes").iterdir()
        return node / "instances"

    def shims(self) -> dict[str, str]:
        """Return who keeps each instance that there is something of: its process and begin."""
        folders = (each for each in self.instances.iterdir() if not each.name.startswith("."))
        return {each.name: (each / "process").read_text() for each in folders}


def family_of(pid: int) -> list[int]:
    """Return a process and all below it."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children += map(int, task.read_text().split())
    return [pid, *(each for child in children for each in family_of(child))]


@pytest.fixture(scope="module", params=["runc", "bubblewrap"])
def install(request: pytest.FixtureRequest) -> Iterator[Install]:
    """Serve an install: as root with runc, as nobody with bubblewrap."""
    if os.geteuid() != 0:
        missing("root, to begin as")
    driver: str = request.param
    require_tool("runc" if driver == "runc" else "bwrap")
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    settings = {"ENTREPOT_COMPUTE_DISK_MB": "16"}  # it is set aside at once, here in memory
    if driver == "runc":
        settings["ENTREPOT_COMPUTE_DRIVER"] = driver
    with serving(top / "data", settings=lambda _port: settings) as signed_in:
        made = Install(
            top / "data", signed_in.registry.url, signed_in.acme, signed_in.registry, settings
        )
        if driver != "runc":
            signed_in.registry.stop()
            give_away(made, top)
        yield made
    for group in made.groups:
        until(lambda: not (group / "cgroup.procs").read_text())  # noqa: B023 - at once
        for below in group.glob("entrepot-*/"):  # that of the shims stays, empty
            below.rmdir()
        group.rmdir()
    shutil.rmtree(top)


def give_away(install: Install, top: Path) -> None:
    """Let nobody have an install, and groups in which to make groups; serve it so."""
    install.settings["ENTREPOT_COMPUTE_DRIVER"] = "bubblewrap"
    for each in (top, *top.rglob("*")):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
    for controller in ("memory", "pids", "cpu"):
        group = Path("/sys/fs/cgroup") / controller / f"given-{top.name}"
        if not group.parent.is_dir():
            missing(f"the controller {controller} of version 1")
        group.mkdir()
        for each in (group, group / "cgroup.procs", group / "tasks"):
            os.chown(each, NOBODY, NOBODY)
        install.groups.append(group)
    install.start()


@pytest.fixture(scope="module")
def images(install: Install) -> dict[str, str]:
    """Push two versions of a web server, which instances may have by a role; return digests."""
    login = install.call("POST", "/v1/authorization-token")
    install.call("POST", "/v1/repositories", {"name": "web"})
    pair, digests = (login["username"], login["password"]), {}
    for tag in ("1", "2"):
        image = busybox_image("sh", "-c", SERVE, files={"srv/index.html": tag.encode()})
        digests[tag] = push_as(install.url, pair, "acme/web", tag, image)
    trust = {"version": "1", "statements": [TRUST]}
    role = install.call("POST", "/v1/roles", {"name": "web", "trust_policy": trust})["role"]
    document = {"version": "1", "statements": [MAY_PULL]}
    made = install.call("POST", "/v1/policies", {"name": "web", "document": document})
    path = f"/v1/policies/{made['policy']['id']}/attachments"
    install.call("POST", path, {"role": role["id"]})
    return digests


def body_of(folder: Path) -> bytes:
    """Return what a web server answers by the socket of its port."""
    descriptor = os.open(folder / "ports", os.O_PATH)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(f"/proc/self/fd/{descriptor}/{PORT}")
        os.close(descriptor)
        client.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
        answer = b""
        while part := client.recv(4096):
            answer += part
    return answer.partition(b"\r\n\r\n")[2]


def test_the_service_is_killed_between_steps_and_goes_on(
    install: Install, images: dict[str, str]
) -> None:
    """By a real driver: adopted, never doubled, and nothing is left.

    The steps of the service are the same with both drivers: with bubblewrap it dies only while all
    instances run, and while they are deleted.
    """
    dies_at_each_step = install.driver == "runc"
    wanted = {"image": "web:1", "size": 2, "ports": [PORT], "role": "web", "memory_mb": 64}
    made = install.call("POST", "/v1/instance-pools", {"name": "web", **wanted})
    path = f"/v1/instance-pools/{made['instance_pool']['id']}"

    def pool() -> Any:  # noqa: ANN401
        return install.call("GET", path)["instance_pool"]

    def instances() -> list[Any]:
        found: list[Any] = install.call("GET", f"{path}/instances")["instances"]
        return found

    def is_active() -> bool:
        shown = pool()
        return bool(shown["status"] == "active" and len(instances()) == shown["size"])

    if dies_at_each_step:
        until(instances)
        install.kill()
    until(is_active, "two instances run", seconds=90)
    before = install.shims()
    assert before.keys() == {each["id"] for each in instances()}
    install.kill()
    until(lambda: len(instances()) == 2 and is_active(), seconds=90)
    assert install.shims() == before, "they were adopted"
    for each in instances():
        assert body_of(install.instances / each["id"]) == b"1"
        assert (each["restarts"], each["image_digest"]) == (0, images["1"])
        logs = install.ask("GET", f"{path}/instances/{each['id']}/logs?tail=4")
        assert (logs.content, logs.headers["content-type"]) == (
            b" as\n",
            "text/plain; charset=utf-8",
        )
    # A new version, and the service dies whenever another instance has come or gone.
    install.call("PATCH", path, {"image": "web:2"})
    seen = [{each["id"] for each in instances()}]
    for _ in range(2 if dies_at_each_step else 0):
        until(
            lambda: {each["id"] for each in instances()} != seen[-1], "the roll goes on", seconds=90
        )
        seen.append({each["id"] for each in instances()})
        install.kill()
    until(is_active, "the roll has ended", seconds=90)
    assert {each["image_digest"] for each in instances()} == {images["2"]}
    assert not before.keys() & install.shims().keys()
    assert install.shims().keys() == {each["id"] for each in instances()}
    for each in instances():
        assert body_of(install.instances / each["id"]) == b"2"
    credentials = (install.instances / instances()[0]["id"] / "credentials.json").read_text()
    token = {"Authorization": f"Bearer {json.loads(credentials)['access_token']}"}
    listing = f"{install.url}/v1/repositories"
    assert httpx.get(listing, headers=token).status_code == 200
    # The deletion, with a death in it.
    assert install.ask("DELETE", path).status_code == 204
    install.kill()
    assert install.ask("DELETE", path).status_code == 204
    until(lambda: install.ask("GET", path).status_code == 404, "the pool is gone", seconds=90)
    assert install.ask("DELETE", path).status_code == 204
    assert install.shims() == {}
    assert [each for each in install.instances.iterdir() if not each.name.startswith(".")] == []
    assert left_of(install.instances) == []
    assert httpx.get(listing, headers=token).status_code == 401


def left_of(folder: Path) -> list[str]:
    """Return the processes and mounts of instances below a folder."""
    found = [
        line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line
    ]
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (each / "cmdline").read_bytes() + (each / "cwd").readlink().as_posix().encode()
            if str(folder).encode() in words:
                found.append(f"{each.name}: {words!r}")
    return found
