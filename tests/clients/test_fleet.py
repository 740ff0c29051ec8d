"""Two nodes behind HAProxy lose nothing that they acknowledged, whatever is killed meanwhile.

skopeo pushes and pulls, podman pulls, and somebody asks all the time and sees how they are
answered, while nodes, the database and the store are killed again and again.
"""

from __future__ import annotations

import itertools
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.clients.archives import write_layout
from tests.clients.containers import Containers
from tests.clients.fleet import NODES, Fleet, running_fleet, wait_until
from tests.clients.images import Store, noise, sha256
from tests.entrepot import told

pytestmark = [pytest.mark.client("skopeo"), pytest.mark.timeout(300)]

KILLS: Final = ("node-1", "database", "store", "node-2", "database")
LAYER_BYTES: Final = 300_000
PUSHERS: Final = 2


@dataclass
class Clients:
    """Programs that push and pull until they are stopped, and what they saw."""

    fleet: Fleet
    key: tuple[str, str]
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Digests by tag."""
    refusals: list[str] = field(default_factory=list)
    """What pushes and pulls that failed have said."""
    answers: list[tuple[int, float]] = field(default_factory=list)
    """Statuses of the requests of a person, and the seconds until they were there."""
    wrong: list[str] = field(default_factory=list)
    """What must not be."""
    stopping: threading.Event = field(default_factory=threading.Event)

    def machine(self, name: str) -> Containers:
        """Return a machine that is signed in."""
        made = Containers(self.fleet.folder / name, self.fleet.host)
        with self.person() as http:
            headers = {"Authorization": f"Bearer {self.access_token(http)}"}
            login = http.post("/v1/authorization-token", headers=headers).raise_for_status().json()
        made.run(
            *("skopeo", "login", "--authfile", made.environment["REGISTRY_AUTH_FILE"]),
            *("--username", login["username"], "--password", login["password"], self.fleet.host),
        )
        return made

    def person(self) -> httpx.Client:
        """Return a connection that trusts the certificate."""
        trusted = ssl.create_default_context(cafile=str(self.fleet.certificate))
        return httpx.Client(base_url=self.fleet.url, verify=trusted, timeout=30)

    def access_token(self, http: httpx.Client) -> str:
        """Return a token for ``/v1``."""
        grant = {"grant_type": "client_credentials"}
        answer = http.post("/v1/oauth/token", data=grant, auth=self.key).raise_for_status()
        token: str = answer.json()["access_token"]
        return token

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Let all of them work meanwhile."""
        machines = [self.machine(f"machine-{number}") for number in range(PUSHERS)]
        threads = [
            *(threading.Thread(target=self._push, args=each) for each in enumerate(machines)),
            threading.Thread(target=self._pull, args=(self.machine("puller"),)),
            threading.Thread(target=self._ask),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()

    def reference(self, tag: str) -> str:
        """Return where an image is."""
        return f"docker://{self.fleet.host}/acme/app:{tag}"

    def wait_for_another(self) -> None:
        """Wait until one more image is acknowledged."""
        before = len(self.acknowledged)
        wait_until(
            lambda: len(self.acknowledged) > before,
            lambda: "\n".join([*self.refusals[-4:], *self.wrong]),
        )

    def _push(self, number: int, machine: Containers) -> None:
        for count in itertools.count():
            tag = f"{number}-{count}"
            image = Store(machine.home / "content" / tag).image(
                [{"a": noise(LAYER_BYTES, tag)}, {"b": tag.encode()}]
            )
            layout = machine.home / f"layout-{tag}"
            write_layout(image, layout)
            ended = machine.attempt(
                "skopeo", "copy", "--quiet", f"oci:{layout}:latest", self.reference(tag)
            )
            if ended.returncode == 0:
                self.acknowledged[tag] = image.digest
            else:
                self.refusals.append(ended.stderr)
            if self.stopping.wait(0.1):
                return

    def _pull(self, machine: Containers) -> None:
        chosen = random.Random(33)
        for count in itertools.count():
            if self.acknowledged:
                tag = chosen.choice(sorted(self.acknowledged))
                target = machine.home / f"pulled-{count}"
                ended = machine.attempt(
                    "skopeo", "copy", "-q", self.reference(tag), f"dir:{target}"
                )
                if ended.returncode:
                    self.refusals.append(ended.stderr)
                    if "manifest unknown" in ended.stderr or "blob unknown" in ended.stderr:
                        self.wrong.append(f"{tag}: {ended.stderr}")
            if self.stopping.wait(0.1):
                return

    def _ask(self) -> None:
        """Ask for a list, again and again; an answer is what it should be, or a clear refusal."""
        with self.person() as http:
            headers = {"Authorization": f"Bearer {self.access_token(http)}"}
        while not self.stopping.wait(0.05):
            began = time.monotonic()
            try:
                with self.person() as http:
                    answer = http.get("/v1/repositories", headers=headers)
            except httpx.TransportError as error:
                self.wrong.append(f"no answer: {error!r}")
                continue
            self.answers.append((answer.status_code, time.monotonic() - began))
            is_right = answer.is_success or (answer.status_code == 503 and is_clear(answer))
            if not is_right:
                self.wrong.append(f"{answer.status_code} {answer.headers} {answer.text}")


def is_clear(refusal: httpx.Response) -> bool:
    """Tell whether a refusal says in words that it is one, and when to come again."""
    error = refusal.json()["error"]
    return "retry-after" in refusal.headers and bool(error["code"]) and bool(error["message"])


@pytest.fixture
def clients(workspace: Path) -> Iterator[Clients]:
    """Return clients of a fleet."""
    with running_fleet(workspace) as (fleet, shown):
        key = told("access key id", shown), told("secret access key", shown)
        yield Clients(fleet, key)


def kill(fleet: Fleet, what: str) -> None:
    """Kill a service, and start it again some time later."""
    if what in NODES:
        fleet.kill_node(what)
        time.sleep(0.5)
        fleet.start_node(what)
    elif what == "store":
        fleet.kill_store()
        time.sleep(1)
        fleet.start_store()
    else:
        fleet.kill_database()
        time.sleep(1)
        fleet.start_database()


def test_no_acknowledged_image_is_lost_whatever_is_killed(
    clients: Clients,
) -> None:
    fleet = clients.fleet
    with clients.busy():
        for what in KILLS:
            clients.wait_for_another()
            kill(fleet, what)
        fleet.wait_until_ready()
    assert clients.wrong == []
    statuses = Counter(status for status, _ in clients.answers)
    assert statuses[200] > 10
    assert statuses[503], "the database was away"
    looker = clients.machine("looker")
    for tag, digest in clients.acknowledged.items():
        target = looker.home / f"found-{tag}"
        looker.run("skopeo", "copy", "--quiet", clients.reference(tag), f"dir:{target}")
        assert sha256((target / "manifest.json").read_bytes()) == digest
    pulled = f"{fleet.host}/acme/app:{next(reversed(clients.acknowledged))}"
    looker.run("podman", "pull", "--quiet", pulled)
    for node in NODES:
        fleet.stop_node(node)
        assert '"status":500' not in fleet.log(node)
    assert "0 violations" in fleet.command("fsck")
