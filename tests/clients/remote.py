"""The registry as the tests look at it beside the client: with plain HTTP requests."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from tests.clients.images import DOCKER, OCI, Descriptor, Image

ACCEPT = f"{OCI.manifest}, {OCI.index}, {DOCKER.manifest}, {DOCKER.index}"


@dataclass(frozen=True)
class Remote:
    """One repository of the registry under test."""

    http: httpx.Client
    name: str

    @property
    def host(self) -> str:
        """Return host and port of the registry."""
        return self.http.base_url.netloc.decode()

    @property
    def reference(self) -> str:
        """Return host, port and repository, as clients take them."""
        return f"{self.host}/{self.name}"

    @property
    def base(self) -> str:
        """Return the path all paths of this repository begin with."""
        return f"/v2/{self.name}"

    def sibling(self, suffix: str) -> Remote:
        """Return another repository of the same registry."""
        return Remote(self.http, f"{self.name}-{suffix}")

    def manifest(self, reference: str) -> httpx.Response:
        """Return the answer to GET of a manifest."""
        return self.http.get(f"{self.base}/manifests/{reference}", headers={"Accept": ACCEPT})

    def digest(self, reference: str) -> str:
        """Return the digest that `reference` has now."""
        answer = self.manifest(reference).raise_for_status()
        return answer.headers["Docker-Content-Digest"]

    def blob(self, digest: str) -> httpx.Response:
        """Return the answer to GET of a blob."""
        return self.http.get(f"{self.base}/blobs/{digest}")

    def referrers(self, digest: str) -> list[Descriptor]:
        """Return what the registry lists as referring to `digest`."""
        answer = self.http.get(f"{self.base}/referrers/{digest}").raise_for_status()
        manifests: list[Descriptor] = answer.json()["manifests"]
        return manifests

    def holds(self, image: Image) -> bool:
        """Tell whether every manifest and blob of `image` is here, byte for byte."""
        return all(
            self.manifest(member.digest).content == image.store.read(member.digest)
            and all(self.blob(blob).content == image.store.read(blob) for blob in member.blobs)
            for member in image.walk()
        )

    def push(self, image: Image, *tags: str) -> None:
        """Push `image` without any client, for the tests whose client only pulls."""
        for member in image.walk():
            for blob in member.blobs:
                where = self.http.post(f"{self.base}/blobs/uploads/").raise_for_status()
                location = httpx.URL(where.headers["Location"])
                content = image.store.read(blob)
                self.http.put(
                    location.copy_merge_params({"digest": blob}), content=content
                ).raise_for_status()
            for reference in (tags if member == image else ()) or (member.digest,):
                self.http.put(
                    f"{self.base}/manifests/{reference}",
                    content=image.store.read(member.digest),
                    headers={"Content-Type": member.descriptor["mediaType"]},
                ).raise_for_status()
