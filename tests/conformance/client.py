"""A client of the distribution API for tests that may be turned on any registry."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import httpx
import pytest

from tests.conformance.content import (
    MANIFEST_TYPES,
    OCI_MANIFEST,
    OCTET_STREAM,
    Content,
    config,
    image_manifest,
)


@dataclass(frozen=True)
class Registry:
    """The registry under test."""

    http: httpx.Client
    namespace: str
    only_standard: bool

    def new_repository(self) -> Repository:
        """Return a repository that nobody has used yet."""
        return self[f"{self.namespace}/conformance-{uuid.uuid4().hex[:12]}"]

    def decline(self, response: httpx.Response, *statuses: int, optional: str) -> None:
        """Skip the test when a peer declines an optional feature; our own may not decline."""
        if self.only_standard and response.status_code in statuses:
            pytest.skip(f"{optional}: optional, answered {response.status_code}")

    def __getitem__(self, name: str) -> Repository:
        """Return a repository, whether or not it exists."""
        return Repository(name, self)


class Repository(str):
    """A repository of the registry under test, and its name."""

    __slots__ = ("registry",)
    registry: Registry

    def __new__(cls, name: str, registry: Registry) -> Self:
        """Return the repository of a name."""
        made = super().__new__(cls, name)
        made.registry = registry
        return made

    @property
    def http(self) -> httpx.Client:
        """Return the client of the registry."""
        return self.registry.http

    def another(self) -> Repository:
        """Return a repository that nobody has used yet."""
        return self.registry.new_repository()

    def decline(self, response: httpx.Response, *statuses: int, optional: str) -> None:
        """Skip the test when a peer declines an optional feature; our own may not decline."""
        self.registry.decline(response, *statuses, optional=optional)

    # uploads

    def post(self, body: bytes = b"", /, **query: str) -> httpx.Response:
        """Ask for an upload session (end-4a), to push at once (end-4b) or to mount (end-11)."""
        return self.http.post(f"/v2/{self}/blobs/uploads/", params=query, content=body)

    def start_upload(self, **query: str) -> str:
        """Open an upload session (end-4a) and return its absolute URL."""
        response = self.post(**query)
        assert response.status_code == 202, response.text
        return location_of(response)

    def append(
        self, upload: str, chunk: bytes, start: int | None = None, **headers: str
    ) -> httpx.Response:
        """Send one chunk (end-5); `start` None leaves `Content-Range` out."""
        headers = {"content-type": OCTET_STREAM, **headers}
        if start is not None:
            headers["content-range"] = f"{start}-{start + len(chunk) - 1}"
        return self.http.patch(upload, content=chunk, headers=headers)

    def finish(
        self, upload: str, digest: str, chunk: bytes = b"", start: int | None = None
    ) -> httpx.Response:
        """Close an upload session (end-6), optionally with a last chunk."""
        headers = {"content-type": OCTET_STREAM} if chunk else {}
        if start is not None:
            headers["content-range"] = f"{start}-{start + len(chunk) - 1}"
        return self.http.put(with_query(upload, digest=digest), content=chunk, headers=headers)

    # whole pushes, as preparation of a test

    def push_blob(self, content: Content) -> Content:
        """Push a blob by POST and PUT; return it."""
        response = self.finish(self.start_upload(), content.digest, content.body)
        assert response.status_code == 201, response.text
        return content

    def put_manifest(
        self,
        manifest: Content,
        reference: str | None = None,
        tags: Iterable[str] = (),
        **headers: str,
    ) -> httpx.Response:
        """Push a manifest (end-7a, with `tags` end-7b); by its digest without a `reference`."""
        return self.http.put(
            f"/v2/{self}/manifests/{reference or manifest.digest}",
            params=[("tag", tag) for tag in tags],
            content=manifest.body,
            headers={"content-type": manifest.media_type, **headers},
        )

    def push_manifest(self, manifest: Content, reference: str | None = None) -> Content:
        """Push a manifest that must be accepted; return it."""
        response = self.put_manifest(manifest, reference)
        assert response.status_code == 201, response.text
        return manifest

    def push_image(self, tag: str | None = None, layers: int = 1, **fields: object) -> Content:
        """Push an image that nobody has pushed yet; return its manifest."""
        parts = [self.push_blob(Content(uuid.uuid4().bytes)) for _ in range(layers)]
        image_config = self.push_blob(config())
        return self.push_manifest(
            image_manifest(image_config, parts, OCI_MANIFEST, "sha256", **fields), tag
        )

    # reads

    def get_blob(self, digest: str, **headers: str) -> httpx.Response:
        """Pull a blob (end-2)."""
        return self.http.get(f"/v2/{self}/blobs/{digest}", headers=headers)

    def head_blob(self, digest: str, **headers: str) -> httpx.Response:
        """Ask whether a blob exists (end-2)."""
        return self.http.head(f"/v2/{self}/blobs/{digest}", headers=headers)

    def get_manifest(self, reference: str, **headers: str) -> httpx.Response:
        """Pull a manifest (end-3)."""
        return self.http.get(f"/v2/{self}/manifests/{reference}", headers=_accepting_all(headers))

    def head_manifest(self, reference: str, **headers: str) -> httpx.Response:
        """Ask whether a manifest exists (end-3)."""
        return self.http.head(f"/v2/{self}/manifests/{reference}", headers=_accepting_all(headers))

    def delete_manifest(self, reference: str) -> httpx.Response:
        """Delete a tag or a manifest (end-9)."""
        return self.http.delete(f"/v2/{self}/manifests/{reference}")

    def delete_blob(self, digest: str) -> httpx.Response:
        """Delete a blob (end-10)."""
        return self.http.delete(f"/v2/{self}/blobs/{digest}")

    def list_tags(self, **query: str | int) -> httpx.Response:
        """List tags (end-8a, end-8b)."""
        return self.http.get(f"/v2/{self}/tags/list", params=query)

    def list_referrers(self, digest: str, **query: str) -> httpx.Response:
        """List referrers (end-12a, end-12b)."""
        return self.http.get(f"/v2/{self}/referrers/{digest}", params=query)


def _accepting_all(headers: dict[str, str]) -> dict[str, str]:
    return {"accept": ", ".join(MANIFEST_TYPES), **headers}


def location_of(response: httpx.Response) -> str:
    """Return the `Location` of `response` as an absolute URL (it MAY be relative)."""
    return str(response.request.url.join(response.headers["location"]))


def next_page(response: httpx.Response) -> str | None:
    """Return the absolute URL of `Link: <…>; rel="next"` (RFC 8288), None without one."""
    link = response.links.get("next")
    return str(response.request.url.join(link["url"])) if link else None


def with_query(url: str, **query: str) -> str:
    """Add query parameters to a `Location`, keeping those it has."""
    return str(httpx.URL(url).copy_merge_params(query))
