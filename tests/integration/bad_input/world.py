"""What is in the registry when bad input arrives, and the proof that it stays so."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.conformance.content import (
    OCI_MANIFEST,
    Content,
    blob,
    config,
    document,
    image_index,
    image_manifest,
)
from tests.integration.bad_input.raw_request import Answer, connection_to, send

ABSENT = "sha256:" + "0" * 64


@dataclass
class World:
    """A registry with a few things in it.

    `repo` has an image `v1`, its parent index `multi` and a free blob; it must not change.
    `scratch` has the same blobs and takes what is accepted. `other` is a sibling with a layer.
    """

    url: str
    repo: str
    scratch: str
    other: str
    config: Content
    layer: Content
    free: Content
    elsewhere: Content
    image: Content
    index: Content
    seen: dict[str, Any] | None = None

    def names(self) -> dict[str, str]:
        """Return what the braces in a case's target stand for; sessions are made as asked."""
        return {
            "repo": self.repo,
            "scratch": self.scratch,
            "other": self.other,
            "account": self.repo.partition("/")[0],
            "free": self.free.digest,
            "layer": self.layer.digest,
            "elsewhere": self.elsewhere.digest,
            "image": self.image.digest,
            "index": self.index.digest,
            "absent": ABSENT,
        }

    def send(
        self,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Send one request to the registry."""
        if method not in {"GET", "HEAD"}:
            self.seen = None
        return send(self.url, method, target, headers, body)

    def open_upload(self, repository: str, received: bytes = b"") -> str:
        """Open a session that holds `received`; return its id."""
        opened = self.send("POST", f"/v2/{repository}/blobs/uploads/", {"Content-Length": "0"})
        assert opened.status == 202, opened.body
        location = opened.header("location")
        assert location is not None
        if received:
            assert self.send("PATCH", location, body=received).status == 202
        return location.rpartition("/")[2]

    def push(self, repository: str, content: Content) -> None:
        """Push a blob."""
        target = f"/v2/{repository}/blobs/uploads/?digest={content.digest}"
        pushed = self.send("POST", target, {"Content-Length": str(len(content.body))}, content.body)
        assert pushed.status == 201, pushed.body

    def put(self, repository: str, manifest: Content, reference: str) -> Answer:
        """Push a manifest."""
        target = f"/v2/{repository}/manifests/{reference}"
        return self.send("PUT", target, {"Content-Type": manifest.media_type}, manifest.body)

    def manifest_with(self, **changes: object) -> bytes:
        """Return the image's manifest with some fields changed, those of None left out."""
        fields = {**json.loads(self.image.body), **changes}
        kept = {name: value for name, value in fields.items() if value is not None}
        return document(kept, OCI_MANIFEST).body

    def received(self, upload: str) -> str | None:
        """Return the range that a session of `repo` says it has."""
        return self.send("GET", f"/v2/{self.repo}/blobs/uploads/{upload}").header("range")

    def known_state(self) -> dict[str, Any]:
        """Return the state as last looked at, if nothing was written since."""
        return self.seen if self.seen is not None else self.state()

    def state(self) -> dict[str, Any]:
        """Look at all that a client can see of `repo` and `scratch`."""
        paths = [f"/v2/{name}/tags/list" for name in (self.repo, self.scratch)]
        paths += [f"/v2/{self.repo}/manifests/{name}" for name in ("v1", "multi")]
        paths += [f"/v2/{self.repo}/referrers/{self.image.digest}"]
        paths += [f"/v2/_catalog?last={self.repo}"]
        blobs = [
            f"/v2/{self.repo}/blobs/{content.digest}"
            for content in (self.free, self.layer, self.config)
        ]
        state: dict[str, Any] = {}
        with closing(connection_to(self.url)) as connection:
            for method, path in (*(("GET", each) for each in paths), *(("HEAD", b) for b in blobs)):
                connection.request(method, path)
                with connection.getresponse() as answer:
                    state[path] = (answer.status, answer.read())
        self.seen = state
        return state

    def state_of_repo(self) -> dict[str, Any]:
        """Look at what a client can see of `repo`, which no request may change."""
        return {path: seen for path, seen in self.state().items() if f"/v2/{self.repo}/" in path}


def build_world(url: str, namespace: str) -> World:
    """Fill three new repositories of a registry."""
    base = f"{namespace}/bad-input-{uuid.uuid4().hex[:12]}"
    image_config, layer = config(), blob()
    image = image_manifest(image_config, [layer])
    world = World(
        url=url,
        repo=f"{base}/repo",
        scratch=f"{base}/scratch",
        other=f"{base}/other",
        config=image_config,
        layer=layer,
        free=blob(),
        elsewhere=blob(),
        image=image,
        index=image_index([image]),
    )
    for repository in (world.repo, world.scratch):
        for content in (world.config, world.layer, world.free):
            world.push(repository, content)
        assert world.put(repository, world.image, "v1").status == 201
        assert world.put(repository, world.index, "multi").status == 201
    world.push(world.other, world.elsewhere)
    return world
