"""Clients pull Docker Hub's names through the cache, with the settings that the page gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.clients.archives import blobs_in_dir, hex_of
from tests.clients.cache_world import PAGE, PREFIX, Cache, serving_cache
from tests.clients.containerd import running_containerd
from tests.clients.docker_engine import running_docker
from tests.clients.docs_blocks import block_of
from tests.clients.images import NATIVE, Image, Store
from tests.clients.programs import require_root

OTHER: Final = "arm64" if NATIVE == "amd64" else "amd64"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """Return a server with a cache that the tests of this module fill, each for its own name."""
    with serving_cache(tmp_path_factory.mktemp("cache")) as served:
        yield served


@dataclass(frozen=True)
class Published:
    """What a repository of the upstream has."""

    index: Image
    """For two platforms, under the tag 1."""
    native: Image
    other: Image
    signature: Image
    """By the tag ``sha256-….sig``."""
    attestation: Image
    """Refers to the index."""


def publish(cache: Cache, store: Store, name: str) -> Published:
    """Publish a signed image for two platforms upstream."""
    native, other = (
        store.image([{"cpu": f"{name} on {cpu}".encode()}], architecture=cpu)
        for cpu in (NATIVE, OTHER)
    )
    index = store.index([native, other])
    cache.publish(name, index, "1")
    kind = "application/vnd.dev.cosign.artifact.sig.v1+json"
    signature = store.artifact([f"signature of {name}".encode()], artifact_type=kind)
    tag = index.digest.replace(":", "-")
    cache.publish(name, signature, f"{tag}.sig")
    attestation = store.artifact([b"sbom"], artifact_type="text/spdx+json", subject=index)
    referrers = store.index([attestation])
    cache.publish(name, referrers, tag)
    return Published(index, native, other, signature, attestation)


@pytest.mark.client("podman")
def test_podman_and_skopeo_by_registries_conf(cache: Cache, store: Store, workspace: Path) -> None:
    require_root("podman")
    name = "library/of-podman"
    reference = f"docker.io/{name}:1"
    made = publish(cache, store, name)
    here = cache.machine(workspace / "here")
    listed = here.run("skopeo", "list-tags", f"docker://{cache.here.host}/acme/{PREFIX}/{name}")
    tag = made.index.digest.replace(":", "-")
    assert json.loads(listed)["Tags"] == ["1", tag, f"{tag}.sig"], "before the first pull"

    assert here.run("podman", "pull", "--quiet", reference).strip() == hex_of(made.native.blobs[0])
    assert cache.image_count(name) == 2, "the index, and one of its images"
    pulled = here.run("podman", "pull", "--quiet", "--arch", OTHER, reference)
    assert pulled.strip() == hex_of(made.other.blobs[0])
    assert cache.image_count(name) == 3
    signature = f"docker://docker.io/{name}:{made.index.digest.replace(':', '-')}.sig"
    here.run("skopeo", "copy", signature, f"dir:{workspace}/signature")
    assert made.signature.digest in blobs_in_dir(workspace / "signature").values()
    assert cache.referrers(name, made.index.digest) == [made.attestation.digest]
    by_digest = f"docker://{cache.here.host}/acme/{PREFIX}/{name}@{made.attestation.digest}"
    here.run("skopeo", "copy", by_digest, f"dir:{workspace}/attestation")
    absent = here.attempt("skopeo", "inspect", by_digest.replace(name, "library/absent"))
    assert "manifest unknown" in absent.stderr.lower()

    there = cache.machine(workspace / "there")
    with cache.upstream_stopped():
        there.run("podman", "pull", "--quiet", reference)
        there.run("skopeo", "copy", "--all", f"docker://{reference}", f"dir:{workspace}/all")
        there.run("skopeo", "copy", signature, f"dir:{workspace}/again")
        assert cache.referrers(name, made.index.digest) == [made.attestation.digest]
        away = there.attempt("skopeo", "inspect", by_digest.replace(name, "library/other"))
        assert "503 Service Unavailable" in away.stderr
    assert made.index.digest in blobs_in_dir(workspace / "all").values()


@pytest.mark.client("containerd")
@pytest.mark.parametrize(
    ("way", "having"), [("by-ns", 'example.com"]'), ("by-path", "override_path")]
)
def test_containerd_by_hosts_toml(
    cache: Cache, store: Store, workspace: Path, way: str, having: str
) -> None:
    name = f"library/of-containerd-{way}"
    reference = f"docker.io/{name}:1"
    made = publish(cache, store, name)
    folder = workspace / "hosts" / "docker.io"
    folder.mkdir(parents=True)
    settings = block_of(PAGE, "toml", having, cache.words)
    (folder / "hosts.toml").write_text(settings)
    fetch = ("content", "fetch", "--hosts-dir", workspace / "hosts")
    user = ("--user", f"token:{cache.here.acme.password}")

    with running_containerd() as machine:
        assert machine.attempt(*fetch, reference).returncode != 0
        machine.ctr(*fetch, *user, "--platform", f"linux/{NATIVE}", reference)
        assert made.index.digest in machine.ctr("images", "list", f"name=={reference}")
        assert cache.image_count(name) == 2
        with cache.upstream_stopped():
            machine.ctr("images", "rm", "--sync", reference)
            machine.ctr(*fetch, *user, "--platform", f"linux/{NATIVE}", reference)
        # The upstream is asked again as soon as it answers.
        machine.ctr(*fetch, *user, "--all-platforms", reference)
        held = machine.ctr("content", "list", "--quiet")
    assert cache.image_count(name) == 3
    assert {*made.native.blobs, *made.other.blobs} <= set(held.split())


@pytest.mark.client("docker")
def test_docker_by_registry_mirrors(cache: Cache, store: Store, workspace: Path) -> None:
    name = "library/of-docker"
    made = publish(cache, store, name)
    settings = json.loads(block_of(PAGE, "json", "registry-mirrors", cache.words))
    here = cache.machine(workspace / "here")
    here.run("skopeo", "inspect", "--raw", f"docker://docker.io/{name}:1")
    with running_docker(settings) as docker:
        assert docker.attempt("pull", "of-docker:1").returncode != 0
        cache.open_to_all(name)
        docker.run("pull", "of-docker:1")
        assert docker.inspect("of-docker:1")["Id"] == made.native.blobs[0]
        docker.run("rmi", "of-docker:1")
        with cache.upstream_stopped():
            docker.run("pull", "of-docker:1")
