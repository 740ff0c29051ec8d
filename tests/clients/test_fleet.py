"""Two nodes behind HAProxy lose nothing that they acknowledged, whatever is killed meanwhile.

skopeo pushes and pulls, podman pulls, and somebody asks all the time and sees how they are
answered, while nodes, the database and the store are killed, and the network between them breaks,
is slow, or passes nothing on.
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
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from cloudcore.db.postgresql_watch import KNOWN_SECONDS
from tests.clients.archives import write_layout
from tests.clients.containers import Containers
from tests.clients.fleet import NODES, Fleet, running_fleet
from tests.clients.images import Store, noise, sha256
from tests.entrepot import told
from tests.waiting import until

pytestmark = [pytest.mark.client("skopeo"), pytest.mark.timeout(300)]

KILLS: Final = ("node-1", "database", "store", "database")
REPOSITORY: Final = "acme/app"
MOVED: Final = f"/v2/{REPOSITORY}/manifests/moved"
UPLOADS: Final = f"/v2/{REPOSITORY}/blobs/uploads/"
MOST_STALE_SECONDS: Final = 2 * KNOWN_SECONDS
"""Twice the time that is promised."""
LAYER_BYTES: Final = 300_000
PUSHERS: Final = 2


@dataclass
class Clients:
    """Programs that push and pull until they are stopped, and what they saw."""

    fleet: Fleet
    key: tuple[str, str]
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Digests by tag."""
    begun: list[str] = field(default_factory=list)
    """Tags whose pushes have begun."""
    refusals: list[str] = field(default_factory=list)
    """What pushes and pulls that failed have said."""
    answers: list[tuple[int, float]] = field(default_factory=list)
    """Statuses of the requests of a person, and the seconds until they were there."""
    wrong: list[str] = field(default_factory=list)
    """What must not be."""
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._trusted = ssl.create_default_context(cafile=str(self.fleet.certificate))

    def machine(self, name: str) -> Containers:
        """Return a machine that is signed in."""
        made = Containers(self.fleet.folder / name, self.fleet.host)
        with self.person() as http:
            username, password = self.login(http)
        made.run(
            *("skopeo", "login", "--authfile", made.environment["REGISTRY_AUTH_FILE"]),
            *("--username", username, "--password", password, self.fleet.host),
        )
        return made

    @contextmanager
    def signed_in(self) -> Iterator[httpx.Client]:
        """Return a connection that may pull and push by ``/v2``."""
        with self.person() as http:
            scope = {"scope": f"repository:{REPOSITORY}:pull,push"}
            answer = http.get("/v2/token", params=scope, auth=self.login(http)).raise_for_status()
            http.headers["Authorization"] = f"Bearer {answer.json()['token']}"
            yield http

    def login(self, http: httpx.Client) -> tuple[str, str]:
        """Return a name and a password for ``/v2``."""
        headers = {"Authorization": f"Bearer {self.access_token(http)}"}
        made = http.post("/v1/authorization-token", headers=headers).raise_for_status().json()
        return made["username"], made["password"]

    def person(self) -> httpx.Client:
        """Return a connection that trusts the certificate."""
        return httpx.Client(base_url=self.fleet.url, verify=self._trusted, timeout=30)

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
        return f"docker://{self.fleet.host}/{REPOSITORY}:{tag}"

    def wait_for_another(self) -> None:
        """Wait until one more image is acknowledged."""
        before = len(self.acknowledged)
        until(
            lambda: len(self.acknowledged) > before,
            lambda: "\n".join([*self.refusals[-4:], *self.wrong]),
            seconds=90,  # a node that is silent may hold the repository's lock for a minute
        )

    def wait_for_a_push(self) -> None:
        """Wait until one more push has begun."""
        before = len(self.begun)
        until(lambda: len(self.begun) > before, lambda: "nobody pushes", seconds=90)

    def _push(self, number: int, machine: Containers) -> None:
        for count in itertools.count():
            tag = f"{number}-{count}"
            image = Store(machine.home / "content" / tag).image(
                [{"a": noise(LAYER_BYTES, tag)}, {"b": tag.encode()}]
            )
            layout = machine.home / f"layout-{tag}"
            write_layout(image, layout)
            self.begun.append(tag)
            ended = machine.attempt(
                "skopeo", "copy", "--quiet", f"oci:{layout}:latest", self.reference(tag)
            )
            if ended.returncode == 0:
                self.acknowledged[tag] = image.digest
            else:
                self.refusals.append(ended.stderr)
            if self.stopping.wait(1):
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
            if self.stopping.wait(2):
                return

    def _ask(self) -> None:
        """Ask for a list, again and again; an answer is what it should be, or a clear refusal."""
        with self.person() as http:
            headers = {"Authorization": f"Bearer {self.access_token(http)}"}
        while not self.stopping.wait(0.5):
            began = time.monotonic()
            try:
                with self.person() as http:
                    answer = http.get("/v1/repositories", headers=headers)
            except httpx.TransportError as error:
                self.wrong.append(f"no answer: {error!r}")
                continue
            self.answers.append((answer.status_code, time.monotonic() - began))
            is_right = answer.is_success or is_clear(answer)
            if not is_right:
                self.wrong.append(f"{answer.status_code} {answer.headers} {answer.text}")


def is_clear(refusal: httpx.Response) -> bool:
    """Tell whether a refusal says in words that it is one, and when to come again."""
    body = refusal.json()
    error = body["error"] if "error" in body else body["errors"][0]
    is_refused = refusal.status_code == 503 and "retry-after" in refusal.headers
    return is_refused and bool(error["code"]) and bool(error["message"])


@pytest.fixture
def clients(workspace: Path) -> Iterator[Clients]:
    """Return clients of a fleet."""
    with running_fleet(workspace) as (fleet, shown):
        key = told("access key id", shown), told("secret access key", shown)
        yield Clients(fleet, key)


def kill(clients: Clients, what: str) -> None:
    """Kill a service, and start it again some time later."""
    fleet = clients.fleet
    if what in NODES:
        fleet.kill_node(what)
        clients.wait_for_a_push()
        time.sleep(0.5)
        fleet.start_node(what)
    elif what == "store":
        fleet.kill_store()
        time.sleep(1)
        fleet.start_store()
    else:
        with clients.signed_in() as http:
            fleet.kill_database()
            for node in map(fleet.url_of, NODES):
                until(partial(is_refused, http, node), lambda: "it needs no database", seconds=90)
        fleet.start_database()


def is_refused(http: httpx.Client, node: str) -> bool:
    """Return True if a node answers a pull by a clear 503."""
    found = http.get(f"{node}{MOVED}")
    assert found.is_success or is_clear(found), found.text
    return found.status_code == 503


def cut_network(clients: Clients) -> None:
    """Break all connections of the nodes, each time while an image is pushed."""
    for seconds in (0.1, 0.3, 0.6):
        clients.wait_for_a_push()
        time.sleep(seconds)
        for way in clients.fleet.ways.values():
            way.cut()


def slow_network(clients: Clients) -> None:
    """Let all that nodes send and get take its time, while an image is pushed."""
    for way in clients.fleet.ways.values():
        way.slow(0.005)
    clients.wait_for_another()
    for way in clients.fleet.ways.values():
        way.slow(0)


def silence_database(clients: Clients) -> None:
    """Let one node hear nothing of the database: it keeps no answer, and soon refuses.

    Clients of the proxy are served by the other one.
    """
    (deaf, way), (other, _) = (
        (clients.fleet.url_of(node), clients.fleet.ways[node, "postgresql"]) for node in NODES
    )
    first, last = [*clients.acknowledged.values()][-2:]
    with clients.signed_in() as http:
        move(http, other, first)
        until(lambda: digest_at(http, deaf) == first, lambda: "it is not moved", seconds=90)
        assert digest_at(http, deaf) == first, "it is kept by now"
        way.hold()
        move(http, other, last)
        time.sleep(MOST_STALE_SECONDS)
        refused = http.get(f"{deaf}{MOVED}")
        assert refused.status_code == 503, "it has an answer that is not the database's"
        assert is_clear(refused)
        clients.wait_for_another()
        way.release()
        until(lambda: digest_at(http, deaf) == last, lambda: "it does not hear again", seconds=90)


def silence_store(clients: Clients) -> None:
    """Let no node hear anything of the store: who sends is refused, and told to come again."""
    ways = [clients.fleet.ways[node, "seaweedfs"] for node in NODES]
    with clients.signed_in() as http:
        begun = http.post(UPLOADS).raise_for_status()
        for way in ways:
            way.hold()
        content = noise(LAYER_BYTES, "unheard")
        target = httpx.URL(begun.headers["Location"]).copy_merge_params({"digest": sha256(content)})
        refused = http.put(target, content=content)
        assert refused.status_code == 503, refused.text
        assert is_clear(refused)
        for way in ways:
            way.release()


def move(http: httpx.Client, node: str, digest: str) -> None:
    """Let the tag that moves point to an image, by a node.

    A push that the silence of another node caught may hold the repository's lock for seconds.
    """
    found = http.get(f"{node}/v2/{REPOSITORY}/manifests/{digest}").raise_for_status()
    media_type = {"Content-Type": found.headers["Content-Type"]}

    def is_moved() -> bool:
        answer = http.put(f"{node}{MOVED}", content=found.content, headers=media_type)
        assert answer.is_success or is_clear(answer), answer.text
        return answer.is_success

    until(is_moved, lambda: "no lock is given up", seconds=90)


def digest_at(http: httpx.Client, node: str) -> str | None:
    """Return the image that the tag points to, if a node says so."""
    found = http.get(f"{node}{MOVED}")
    assert found.is_success or is_clear(found), found.text
    digest: str | None = found.headers.get("Docker-Content-Digest")
    return digest


def check_whole(http: httpx.Client, tag: str, digest: str) -> None:
    """Pull an image, all of whose bytes must be those that were pushed."""
    manifest = http.get(f"/v2/{REPOSITORY}/manifests/{tag}").raise_for_status()
    assert sha256(manifest.content) == digest
    for each in (manifest.json()["config"], *manifest.json()["layers"]):
        blob = http.get(f"/v2/{REPOSITORY}/blobs/{each['digest']}").raise_for_status()
        assert sha256(blob.content) == each["digest"]


def test_no_acknowledged_image_is_lost_whatever_is_killed_or_cut(clients: Clients) -> None:
    fleet = clients.fleet
    with clients.busy():
        for what in KILLS:
            clients.wait_for_another()
            kill(clients, what)
        for trouble in (cut_network, slow_network, silence_database, silence_store):
            clients.wait_for_another()
            trouble(clients)
        clients.wait_for_another()
        fleet.wait_until_ready()
    assert clients.wrong == []
    statuses = Counter(status for status, _ in clients.answers)
    assert statuses[200] > 10
    with clients.signed_in() as http:
        for tag, digest in clients.acknowledged.items():
            check_whole(http, tag, digest)
    pulled = f"{fleet.host}/{REPOSITORY}:{next(reversed(clients.acknowledged))}"
    clients.machine("looker").run("podman", "pull", "--quiet", pulled)
    fleet.stop_nodes()
    for node in NODES:
        assert '"status":500' not in fleet.log(node)
    assert "0 violations" in fleet.command("fsck")
