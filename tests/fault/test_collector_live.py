"""A real registry whose collector runs over and over while a client pushes, pulls and deletes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests.live_signed_in import serving
from tests.tenants import bearer

NO_DELAY: Final = {
    "ENTREPOT_GC_GRACE_SECONDS": "0",
    "ENTREPOT_GC_CONDEMNED_SECONDS": "0",
    "ENTREPOT_GC_QUARANTINE_SECONDS": "0",
}
ROUNDS: Final = 12
TRIES: Final = 100
CONFIG: Final = b"{}"
RUNS: Final = "/v1/garbage-collection/runs"


class Collector(threading.Thread):
    """Asks for one run after another until it is told to stop."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__(name="collector")
        self.client = client
        self.stopping = threading.Event()
        self.has_ended = threading.Semaphore(0)
        self.runs: dict[str, dict[str, object]] = {}

    def run(self) -> None:
        """Start runs, and see each to its end."""
        with self.client:
            while not self.stopping.is_set():
                answer = self.client.post(RUNS)
                assert answer.status_code == 202, answer.text
                run = answer.json()["run"]
                while run["status"] == "running" and not self.stopping.wait(0.02):
                    run = self.client.get(f"{RUNS}/{run['id']}").json()["run"]
                self.runs[run["id"]] = run
                self.has_ended.release()


@contextmanager
def collecting(client: httpx.Client) -> Iterator[Collector]:
    """Let the collector run meanwhile."""
    collector = Collector(client)
    collector.start()
    try:
        yield collector
    finally:
        collector.stopping.set()
        collector.join()


def push(client: httpx.Client, layers: list[bytes]) -> tuple[str, int]:
    """Push an image as often as it takes; return its digest, and how often that was."""
    for tries in range(1, TRIES + 1):
        descriptors = []
        for data in (CONFIG, *layers):
            digest = digest_of(data)
            if client.head(f"/v2/acme/app/blobs/{digest}").status_code == 404:
                path = f"/v2/acme/app/blobs/uploads/?digest={digest}"
                answer = client.post(path, content=data)
                assert answer.status_code == 201, answer.text
            descriptors.append({"mediaType": "x/y", "digest": digest, "size": len(data)})
        body = json.dumps(
            {"schemaVersion": 2, "config": descriptors[0], "layers": descriptors[1:]}
        ).encode()
        digest = digest_of(body)
        path, kind = f"/v2/acme/app/manifests/{digest}", {"content-type": OCI_MANIFEST}
        answer = client.put(path, content=body, headers=kind)
        if answer.status_code == 201:
            return digest, tries
        assert answer.status_code == 404, answer.text
        assert {each["code"] for each in answer.json()["errors"]} == {"MANIFEST_BLOB_UNKNOWN"}
    pytest.fail("the collector took a blob every time")


def check_pull(client: httpx.Client, digest: str, layers: list[bytes]) -> None:
    """Pull an image whole."""
    assert client.get(f"/v2/acme/app/manifests/{digest}").status_code == 200
    for data in (CONFIG, *layers):
        answer = client.get(f"/v2/acme/app/blobs/{digest_of(data)}")
        assert (answer.status_code, answer.content) == (200, data)


@pytest.mark.parametrize("delays", [NO_DELAY, {}], ids=["no delay", "as shipped"])
def test_no_acknowledged_image_is_lost(
    tmp_path: Path, delays: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in delays.items():
        monkeypatch.setenv(name, seconds)
    with serving(tmp_path / "data") as signed_in:
        url, acme = signed_in.registry.url, signed_in.acme
        scope = "repository:acme/app:pull,push,delete"
        token = httpx.get(
            f"{url}/v2/token", params={"scope": scope}, auth=("token", acme.password), timeout=30
        ).json()["token"]
        signed_in.call(acme, "POST", "/v1/repositories", {"name": "app"})
        with (
            httpx.Client(base_url=url, headers=bearer(token), timeout=30) as client,
            collecting(httpx.Client(base_url=url, headers=acme.headers, timeout=30)) as collector,
        ):
            kept: dict[str, list[bytes]] = {}
            for number in range(ROUNDS):
                layers = [b"shared", b"layer %d" % (number % 5)]
                digest, tries = push(client, layers)
                assert tries == 1 or delays, "a push failed for want of a blob"
                kept[digest] = layers
                for each, parts in kept.items():
                    check_pull(client, each, parts)
                if number % 3 == 2:
                    gone = next(iter(kept))
                    del kept[gone]
                    path = f"/v2/acme/app/manifests/{gone}"
                    assert client.delete(path).status_code == 202
                garbage = b"garbage %d" % number
                path = f"/v2/acme/app/blobs/uploads/?digest={digest_of(garbage)}"
                assert client.post(path, content=garbage).status_code == 201
            while collector.has_ended.acquire(blocking=False):
                pass
            for _ in range(3):  # a run that began after the last push has ended
                assert collector.has_ended.acquire(timeout=60)
            for each, parts in kept.items():
                check_pull(client, each, parts)
        ended = [run for run in collector.runs.values() if run["status"] != "running"]
        assert all(run["status"] == "succeeded" for run in ended), ended
        assert any(run["removed"] for run in ended) == bool(delays)
