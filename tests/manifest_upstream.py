"""An upstream in this process: its manifests by tag and digest, and what it says instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from registry.oci.digest import Digest, digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from registry.upstream.base import (
    BlobStream,
    FetchedManifest,
    ListedTags,
    ManifestHead,
    NotUpstream,
    Remote,
    UpstreamFailed,
)
from registry.upstream.client import RegistryClient

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


class Asked(NamedTuple):
    """A request for a manifest."""

    method: str
    repository: str
    reference: str


class ManifestUpstream(RegistryClient):
    """Holds manifests of any number of repositories."""

    def __init__(self) -> None:
        self.manifests: dict[tuple[str, str], bytes] = {}
        """By repository and tag, or digest."""
        self.referrers: dict[str, bytes] = {}
        """Indexes by subject."""
        self.has_referrers = True
        self.lists_all_tags = True
        self.asked: list[Asked] = []
        self.failure: Exception | None = None
        """Raised instead of an answer."""
        self.tells_digest = True
        self.tells_etag = True
        self.instead: bytes | None = None
        """Sent instead of a manifest."""
        self.go_on = asyncio.Event()
        """Cleared: GET waits until it is set."""
        self.go_on.set()
        self.was_asked = asyncio.Event()

    def add(self, repository: str, document: dict[str, Any], *tags: str) -> str:
        """Hold a manifest; return its digest."""
        body = json.dumps({"schemaVersion": 2, **document}).encode()
        digest = str(digest_of(body))
        for reference in (digest, *tags):
            self.manifests[repository, reference] = body
        return digest

    def add_image(
        self,
        repository: str,
        *tags: str,
        layers: tuple[bytes, ...] = (b"layer",),
        **more: Any,  # noqa: ANN401
    ) -> str:
        """Hold an image of these layers, and a config that is no more than ``{}``."""
        document = {
            "mediaType": OCI_MANIFEST,
            "config": described(b"{}", CONFIG_TYPE),
            "layers": [described(layer) for layer in layers],
            **more,
        }
        return self.add(repository, document, *tags)

    def add_index(self, repository: str, *tags: str, of: tuple[str, ...]) -> str:
        """Hold an index of images that it holds."""
        children = [described(self.manifests[repository, each], OCI_MANIFEST) for each in of]
        return self.add(repository, {"mediaType": OCI_INDEX, "manifests": children}, *tags)

    def count(self, method: str) -> int:
        """Return how often it was asked so."""
        return [each.method for each in self.asked].count(method)

    async def head_manifest(
        self, remote: Remote, reference: str | Digest, known_etag: str | None = None
    ) -> ManifestHead | None:
        body = self._find("HEAD", remote, reference)
        etag = f'"{digest_of(body)[-8:]}"' if self.tells_etag else None
        if known_etag is not None and known_etag == etag:
            return None
        return ManifestHead(digest_of(body) if self.tells_digest else None, etag)

    async def get_manifest(self, remote: Remote, reference: str | Digest) -> FetchedManifest:
        body = self._find("GET", remote, reference)
        self.was_asked.set()
        await self.go_on.wait()
        media_type = json.loads(body)["mediaType"]
        etag = f'"{digest_of(body)[-8:]}"' if self.tells_etag else None
        return FetchedManifest(self.instead or body, media_type, etag)

    async def list_tags(self, remote: Remote) -> ListedTags:
        self.asked.append(Asked("TAGS", remote.repository, ""))
        self.was_asked.set()
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        held = [tag for name, tag in self.manifests if name == remote.repository]
        if not held:
            raise NotUpstream
        return ListedTags([tag for tag in held if ":" not in tag], self.lists_all_tags)

    async def get_referrers(self, remote: Remote, subject: Digest) -> bytes | None:
        self.asked.append(Asked("REFERRERS", remote.repository, str(subject)))
        if self.failure is not None:
            raise self.failure
        if not self.has_referrers:
            return None
        empty = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
        return self.referrers.get(str(subject), json.dumps(empty).encode())

    async def head_blob(self, remote: Remote, digest: Digest) -> int | None:
        raise NotUpstream

    @asynccontextmanager
    async def open_blob(
        self, remote: Remote, digest: Digest, start: int = 0
    ) -> AsyncIterator[BlobStream]:
        raise NotUpstream
        yield

    async def ping(self, remote: Remote) -> int:
        return 200

    def _find(self, method: str, remote: Remote, reference: str) -> bytes:
        self.asked.append(Asked(method, remote.repository, str(reference)))
        if self.failure is not None:
            raise self.failure
        body = self.manifests.get((remote.repository, str(reference)))
        if body is None:
            raise NotUpstream
        return body


def described(data: bytes, media_type: str = LAYER_TYPE) -> dict[str, Any]:
    """Return a descriptor of some bytes."""
    return {"mediaType": media_type, "digest": str(digest_of(data)), "size": len(data)}


def is_down(upstream: ManifestUpstream, failure: UpstreamFailed) -> None:
    """Let every request fail."""
    upstream.failure = failure
