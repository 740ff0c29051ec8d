"""A server of two workers, whose pull-through cache has Debian's ``docker-registry`` upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.clients.containers import Containers
from tests.clients.debian_registry import running_registry
from tests.clients.docs_blocks import block_of
from tests.clients.images import Image
from tests.clients.remote import Remote
from tests.live_signed_in import SignedIn, serving
from tests.postgresql import free_port

PAGE: Final = "docs/how-to/pull-through-cache.md"
PREFIX: Final = "docker-hub"


@dataclass
class Cache:
    """The server, and its upstream, which stands for Docker Hub."""

    here: SignedIn
    folder: Path
    port: int
    """Of the upstream."""
    running: ExitStack

    @property
    def words(self) -> list[tuple[str, str]]:
        """Return the words of the page, and what they are here."""
        return [
            ("https://mirror.example.com", f"http://{self.mirror}"),
            ("https://registry.example.com", self.here.registry.url),
            ("registry.example.com", self.here.host),
            # Where a client turns to without the mirror: nothing listens there.
            ("https://registry-1.docker.io", "http://127.0.0.1:9"),
        ]

    @property
    def mirror(self) -> str:
        """Return the host that stands for Docker Hub."""
        return mirror_host(self.here.registry.port)

    def start_upstream(self) -> None:
        """Start the upstream, over what it has."""
        self.running.enter_context(running_registry(self.folder / "upstream", self.port))

    @contextmanager
    def upstream_stopped(self) -> Iterator[None]:
        """Let the upstream be down in the block."""
        self.running.close()
        yield
        self.start_upstream()

    def publish(self, name: str, image: Image, *tags: str) -> None:
        """Push an image to a repository of the upstream."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30) as http:
            Remote(http, name).push(image, *tags)

    def image_count(self, name: str) -> int:
        """Return how many manifests of an upstream's repository are here."""
        return int(self._repository(name)["image_count"])

    def open_to_all(self, name: str) -> None:
        """Let everybody pull from a repository."""
        given = {"effect": "allow", "principals": ["*"], "actions": ["registry:PullImage"]}
        path = f"/v1/repositories/{self._repository(name)['id']}/policy"
        body = {"version": "1", "statements": [given]}
        self.here.call(self.here.acme, "PUT", path, body)

    def referrers(self, name: str, digest: str) -> list[str]:
        """Return the digests of what refers to a manifest."""
        url, acme = self.here.registry.url, self.here.acme
        asked = {"scope": f"repository:acme/{PREFIX}/{name}:pull"}
        pair = ("token", acme.password)
        told = httpx.get(f"{url}/v2/token", params=asked, auth=pair, timeout=30)
        bearer = {"Authorization": f"Bearer {told.json()['token']}"}
        path = f"{url}/v2/acme/{PREFIX}/{name}/referrers/{digest}"
        answer = httpx.get(path, headers=bearer, timeout=30).raise_for_status()
        return [each["digest"] for each in answer.json()["manifests"]]

    def machine(self, home: Path) -> Containers:
        """Return a machine set up as the page says for podman, signed in here."""
        machine = Containers(home, self.here.host)
        settings = home / ".config" / "containers" / "registries.conf"
        block = block_of(PAGE, "toml", "[[registry.mirror]]", self.words)
        settings.write_text(f"{settings.read_text()}\n{block}insecure = true\n")
        login = ("podman", "login", "-u", "token", "-p", self.here.acme.password)
        machine.run(*login, self.here.host)
        return machine

    def _repository(self, name: str) -> dict[str, Any]:
        query = f"/v1/repositories?name={PREFIX}/{name}"
        (found,) = self.here.call(self.here.acme, "GET", query)["repositories"]
        return dict(found)


def mirror_host(port: int) -> str:
    """Return the other name of this server, on its port."""
    return f"localhost:{port}"


@contextmanager
def serving_cache(folder: Path) -> Iterator[Cache]:
    """Serve meanwhile, with a rule for the upstream."""
    upstream = free_port()
    url = f"http://127.0.0.1:{upstream}"

    def settings(port: int) -> dict[str, str]:
        names = ("docker.io", mirror_host(port))
        return {
            "ENTREPOT_UPSTREAM_ALLOWED": url,
            "ENTREPOT_MIRRORS": ",".join(f"{name}=acme/{PREFIX}" for name in names),
        }

    with (
        ExitStack() as running,
        serving(folder / "data", "--workers", "2", settings=settings) as here,
    ):
        cache = Cache(here, folder, upstream, running)
        cache.start_upstream()
        rule = {"prefix": PREFIX, "upstream_url": url}
        here.call(here.acme, "POST", "/v1/pull-through-cache-rules", rule)
        yield cache
        records = [json.loads(line) for line in here.registry.lines if line.startswith("{")]
        assert not [each for each in records if each["level"] in {"error", "critical"}]
