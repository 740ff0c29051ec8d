"""Several ``entrepot serve`` on one PostgreSQL and one folder of blobs, as a fleet has them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.databases import create_database, drop_database
from tests.entrepot import end_kept, initialized, told
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port

NODES: Final = ("east", "west")
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class LiveNode:
    """One of the nodes, reached at a port of its own."""

    name: str
    data: Path
    registry: LiveRegistry
    access_token: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return self.registry.url

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        """Call the control plane."""
        signed = {"Authorization": f"Bearer {self.access_token}", **headers}
        return httpx.request(method, self.url + path, headers=signed, json=body, timeout=60)

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        """Call the control plane and return its answer, which must be a success."""
        answer = self.ask(method, path, body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def bearer(self, repository: str) -> dict[str, str]:
        """Return the header of a client of `/v2` that pulls and pushes."""
        login = self.call("POST", "/v1/authorization-token")
        answer = httpx.get(
            f"{self.url}/v2/token",
            params={"scope": f"repository:{repository}:pull,push"},
            auth=(login["username"], login["password"]),
            timeout=60,
        )
        answer.raise_for_status()
        return {"Authorization": f"Bearer {answer.json()['token']}"}

    def data_plane(
        self,
        method: str,
        path: str,
        signed: Mapping[str, str],
        **request: Any,  # noqa: ANN401
    ) -> httpx.Response:
        """Call `/v2`; a location that it names is at the node that is asked next."""
        headers = {**signed, **request.pop("headers", {})}
        return httpx.request(method, self.url + path, headers=headers, timeout=60, **request)

    def push_blob(self, repository: str, signed: Mapping[str, str], content: bytes) -> str:
        """Push a blob in two requests, and return its digest."""
        begun = self.data_plane("POST", f"/v2/{repository}/blobs/uploads/", signed)
        assert begun.status_code == 202, begun.text
        place = with_query(place_of(begun), {"digest": digest_of(content)})
        put = self.data_plane("PUT", place, signed, content=content)
        assert put.status_code == 201, put.text
        return digest_of(content)

    def push_image(self, repository: str, signed: Mapping[str, str], tag: str, note: str) -> str:
        """Push an image of one blob that differs by a note, and return its digest."""
        blob = {"digest": self.push_blob(repository, signed, b"{}"), "size": 2}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", **blob},
            "layers": [{"mediaType": "application/octet-stream", **blob}],
            "annotations": {"note": note},
        }
        content = json.dumps(manifest).encode()
        self.put_manifest(repository, signed, tag, content)
        return digest_of(content)

    def put_manifest(
        self, repository: str, signed: Mapping[str, str], tag: str, content: bytes
    ) -> None:
        """Let a tag point to a manifest."""
        put = self.data_plane(
            "PUT",
            f"/v2/{repository}/manifests/{tag}",
            signed,
            content=content,
            headers={"Content-Type": MANIFEST},
        )
        assert put.status_code == 201, put.text

    def manifest(
        self, repository: str, signed: Mapping[str, str], reference: str
    ) -> httpx.Response:
        """Pull a manifest by tag or digest."""
        answer = self.data_plane(
            "GET",
            f"/v2/{repository}/manifests/{reference}",
            signed,
            headers={"Accept": MANIFEST},
        )
        assert answer.status_code == 200, answer.text
        return answer

    def digest_of_tag(self, repository: str, signed: Mapping[str, str], tag: str) -> str:
        """Return what a tag points to."""
        return str(self.manifest(repository, signed, tag).headers["Docker-Content-Digest"])

    def readiness(self) -> httpx.Response:
        return httpx.get(f"{self.url}/readyz", timeout=60)


def place_of(answer: httpx.Response) -> str:
    """Return the path and query that an upload goes on at, at whichever node."""
    return httpx.URL(answer.headers["Location"]).raw_path.decode()


def with_query(place: str, params: dict[str, str]) -> str:
    return str(httpx.URL(place).copy_merge_params(params))


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class LiveFleet:
    """An install, and its nodes by name."""

    folder: Path
    database: str
    environment: dict[str, str]
    shown: str = field(repr=False)
    """What ``entrepot init`` has shown."""
    nodes: dict[str, LiveNode] = field(default_factory=dict)

    def start(self, name: str, *options: str, **environment: str) -> LiveNode:
        """Start a node, again or for the first time; it keeps its folder, and gets a port."""
        data = self.data_of(name)
        settings = {**self.environment, "ENTREPOT_NODE_NAME": name, **environment}
        registry = start_registry(data, *options, command="serve", env=settings, timeout=110)
        node = LiveNode(name, data, registry)
        self.nodes[name] = node
        node.access_token = self.sign_in(node)
        return node

    def start_all(self, *names: str) -> None:
        """Start nodes beside one another."""
        with ThreadPoolExecutor() as pool:
            [*pool.map(self.start, names)]

    def data_of(self, name: str) -> Path:
        """Return the data folder of a node, which has its own files and the blobs of all."""
        data = self.folder / name
        if not data.exists():
            data.mkdir(mode=0o700)
            for each in ("blobs", "buckets"):
                (data / each).symlink_to(self.folder / "shared" / each)
            shutil.copy(self.folder / "shared" / "root.key", data / "root.key")
        return data

    def sign_in(self, node: LiveNode) -> str:
        """Sign the program of the install in, at a node."""
        pair = (told("access key id", self.shown), told("secret access key", self.shown))
        answer = httpx.post(
            f"{node.url}/v1/oauth/token",
            data={"grant_type": "client_credentials"},
            auth=pair,
            timeout=60,
        )
        answer.raise_for_status()
        token: str = answer.json()["access_token"]
        return token


@contextmanager
def initialized_fleet(
    folder: Path, server: str, template: str = "template0", **settings: str
) -> Iterator[LiveFleet]:
    """Make an install with a database of its own on a PostgreSQL; end its nodes at the end.

    From a `template` that is migrated, it need not be.
    """
    shared = folder / "shared"
    shared.mkdir(mode=0o700)
    database = create_database(server, template)
    environment = {
        "ENTREPOT_DATABASE_URL": database,
        "ENTREPOT_PUBLIC_URL": f"http://127.0.0.1:{free_port()}",
        **settings,
    }
    fleet = LiveFleet(folder, database, environment, initialized(shared, environment))
    try:
        yield fleet
    finally:
        with ThreadPoolExecutor() as pool:
            [*pool.map(lambda node: node.registry.stop(), fleet.nodes.values())]
        for node in fleet.nodes.values():
            end_kept(node.data)
        drop_database(database)
