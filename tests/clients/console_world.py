"""A served install with images as people have them, for the console to show."""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx

from cloudcore.clock import MICROSECONDS
from registry.console.sessions import COOKIE
from tests.clients.images import OCI, as_json, noise, sha256
from tests.entrepot import PASSWORD, Install, fetch_code, installed, sign_in_on
from tests.schedules import postpone

EMPTY: Final = b"{}"
EMPTY_TYPE: Final = "application/vnd.oci.empty.v1+json"
SIGNATURE: Final = "application/vnd.cncf.notary.signature"
SBOM: Final = "application/spdx+json"
ATTESTATION: Final = "application/vnd.in-toto+json"

_OUT_OF_BAND: Final = "urn:ietf:wg:oauth:2.0:oob"
_VERIFIER: Final = "v" * 43
_CHALLENGE: Final = (
    base64.urlsafe_b64encode(hashlib.sha256(_VERIFIER.encode()).digest()).decode().rstrip("=")
)

PACKAGES: Final = {
    "spdxVersion": "SPDX-2.3",
    "name": "shop/frontend:1.4",
    "creationInfo": {"created": "2026-11-02T08:15:00Z", "creators": ["Tool: syft-1.18.1"]},
    "packages": [
        {"name": name, "versionInfo": version, "licenseConcluded": licence}
        for name, version, licence in (
            ("base-files", "12.4+deb12u8", "GPL-2.0-or-later"),
            ("ca-certificates", "20230311", "MPL-2.0"),
            ("express", "4.21.1", "MIT"),
            ("libc6", "2.36-9+deb12u9", "LGPL-2.1-or-later AND BSD-3-Clause AND MIT"),
            ("nodejs", "18.19.0+dfsg-6~deb12u2", "MIT"),
            ("openssl", "3.0.15-1~deb12u1", "Apache-2.0"),
            ("react", "18.3.1", "MIT"),
            ("tini", "0.19.0-1", "MIT"),
        )
    ],
}
"""An SBOM."""

_PATIENCE: Final = 60.0
"""Seconds."""
_MOMENTS: Final = {
    "manifests": ("pushed_at",),
    "tags": ("created_at", "updated_at"),
    "tag_events": ("occurred_at",),
    "repositories": ("created_at", "updated_at"),
}
_MOMENTS_OF_THE_COLLECTOR: Final = {
    "repository_blobs": ("touched_at",),
    "blob_objects": ("condemned_at",),
    "quarantined_objects": ("swept_at",),
}

Descriptor = dict[str, Any]


@dataclass
class Pusher:
    """Pushes to one account as its program."""

    http: httpx.Client
    access_token: str
    scale: int = 1
    """Bytes of a layer of size 1."""
    data: Path = Path()
    """Of the install."""
    _bearers: dict[str, str] = field(default_factory=dict)
    _login: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Call the control plane and return its answer, which must be a success."""
        headers = {"Authorization": f"Bearer {self.access_token}"}
        answer = self.http.request(method, path, headers=headers, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def repository(self, name: str, **fields: object) -> str:
        """Make a repository and return its id."""
        made = self.call("POST", "/v1/repositories", {"name": name, **fields})
        return str(made["repository"]["id"])

    def blob(self, name: str, content: bytes, media_type: str) -> Descriptor:
        """Push a blob and return its descriptor."""
        digest = sha256(content)
        opened = self.http.post(f"/v2/acme/{name}/blobs/uploads/", headers=self._headers(name))
        assert opened.status_code == 202, opened.text
        put = self.http.put(
            httpx.URL(opened.headers["location"]).copy_merge_params({"digest": digest}),
            content=content,
            headers={**self._headers(name), "Content-Type": "application/octet-stream"},
        )
        assert put.status_code == 201, put.text
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def manifest(self, name: str, document: Mapping[str, Any], *tags: str) -> Descriptor:
        """Push a manifest under tags, or none, and return its descriptor."""
        content, media_type = as_json(document), str(document["mediaType"])
        digest = sha256(content)
        for reference in tags or (digest,):
            put = self.http.put(
                f"/v2/acme/{name}/manifests/{reference}",
                content=content,
                headers={**self._headers(name), "Content-Type": media_type},
            )
            assert put.status_code == 201, put.text
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def image(
        self,
        name: str,
        layers: Sequence[tuple[str, float, str]],
        *tags: str,
        architecture: str = "amd64",
        **annotations: str,
    ) -> Descriptor:
        """Push an image whose layers are given by seed, size and the step that made them."""
        config = {
            "architecture": architecture,
            "os": "linux",
            "created": "2026-11-02T08:15:00Z",
            "config": {
                "Entrypoint": ["/usr/bin/tini", "--", "/app/serve"],
                "Cmd": ["--port", "8080"],
                "User": "app",
                "WorkingDir": "/app",
                "ExposedPorts": {"8080/tcp": {}},
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [sha256(seed.encode()) for seed, *_ in layers],
            },
            "history": [
                *({"created_by": step} for _, _, step in layers),
                {"created_by": "ENTRYPOINT", "empty_layer": True},
            ],
        }
        pushed = [
            self.blob(name, noise(int(size * self.scale), seed), OCI.layer)
            for seed, size, _ in layers
        ]
        document = {
            "schemaVersion": 2,
            "mediaType": OCI.manifest,
            "config": self.blob(name, as_json(config), OCI.config),
            "layers": pushed,
            "annotations": annotations,
        }
        made = self.manifest(name, document, *tags)
        return {**made, "platform": {"architecture": architecture, "os": "linux"}}

    def index(self, name: str, images: Sequence[Descriptor], *tags: str) -> Descriptor:
        """Push an index of images."""
        document = {"schemaVersion": 2, "mediaType": OCI.index, "manifests": list(images)}
        return self.manifest(name, document, *tags)

    def attach(
        self,
        name: str,
        subject: Descriptor,
        artifact_type: str,
        size: float,
        document: object = None,
    ) -> Descriptor:
        """Attach an artifact to an image: a document in JSON, or noise of a size."""
        content = noise(max(1, int(size * self.scale)), (subject["digest"], artifact_type))
        if document is not None:
            content = json.dumps(document).encode()
        plain = {key: subject[key] for key in ("mediaType", "digest", "size")}
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI.manifest,
            "artifactType": artifact_type,
            "config": self.blob(name, EMPTY, EMPTY_TYPE),
            "layers": [self.blob(name, content, artifact_type)],
            "subject": plain,
        }
        return self.manifest(name, manifest)

    def age(self, hours: float) -> None:
        """Let so much time have passed since all that was pushed until now."""
        self._shift(_MOMENTS, hours)

    def _shift(self, moments: Mapping[str, Sequence[str]], hours: float) -> None:
        passed = int(hours * 3600 * MICROSECONDS)
        with closing(sqlite3.connect(self.data / "metadata.db", timeout=30)) as database, database:
            for table, columns in moments.items():
                changes = ", ".join(f"{each} = {each} - {passed}" for each in columns)
                database.execute(f"UPDATE {table} SET {changes}")

    def collect(self) -> None:
        """Let the collector take what is due, and wait until it has."""
        path = "/v1/garbage-collection"
        self.call("POST", f"{path}/runs")
        deadline = time.monotonic() + _PATIENCE
        while self.call("GET", path)["garbage_collection"]["status"] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def fill_stages(self, name: str) -> None:
        """Let each stage of the collector hold something that was pushed to a repository.

        The first blob comes to quarantine, the second is condemned, the third waits. No run of the
        collector begins by itself meanwhile.
        """
        postpone(self.data, "registry.garbage_collection")

        def push(size: float) -> None:
            self.blob(name, noise(int(size * self.scale), ("garbage", size)), OCI.layer)

        push(18.2)
        self._shift(_MOMENTS_OF_THE_COLLECTOR, 0.5)
        push(7.7)
        for hours in (23.8, 0.3):
            self._shift(_MOMENTS_OF_THE_COLLECTOR, hours)
            self.collect()
        push(11.3)

    def forget_attempts(self) -> None:
        """Let nobody have tried to sign in lately: ten times in five minutes are the most."""
        with closing(sqlite3.connect(self.data / "metadata.db", timeout=30)) as database, database:
            database.execute("DELETE FROM rate_windows")

    def _headers(self, name: str) -> dict[str, str]:
        if name not in self._bearers:
            if not self._login:
                self._login = self.call("POST", "/v1/authorization-token")
            asked = self.http.get(
                "/v2/token",
                params={
                    "service": self.http.base_url.netloc.decode(),
                    "scope": f"repository:acme/{name}:pull,push",
                },
                auth=(self._login["username"], self._login["password"]),
            )
            assert asked.status_code == 200, asked.text
            self._bearers[name] = asked.json()["token"]
        return {"Authorization": f"Bearer {self._bearers[name]}"}


@dataclass(frozen=True)
class World:
    """The install, and what is in it."""

    install: Install
    pusher: Pusher
    frontend: str
    """Id of the repository `shop/frontend`."""
    index: str
    """Digest of its newest image, which has several platforms."""
    older: str
    """Digest of the image before it."""
    api: str
    """Id of the repository `shop/api`."""

    @property
    def url(self) -> str:
        """Return where it answers."""
        return self.install.url

    @cached_property
    def cookie(self) -> str:
        """Return the cookie of a sign-in of the admin.

        All windows share it: a test that signs out must sign in itself.
        """
        self.pusher.forget_attempts()
        with httpx.Client(base_url=self.url, timeout=60) as browser:
            begun = browser.get("/console/sign-in", params={"to": "/console"})
            signed = sign_in_on(begun.headers["location"], PASSWORD)
            browser.get(signed.headers["location"])
            return str(browser.cookies[COOKIE])

    @cached_property
    def people(self) -> str:
        """Return the address of the organization's people, who have an identity provider."""
        self.pusher.forget_attempts()
        headers = {"Authorization": f"Bearer {self._person_token()}"}
        http = self.pusher.http
        found = http.get("/v1/organizations", headers=headers).raise_for_status().json()
        (own,) = [each for each in found["organizations"] if not each["is_personal"]]
        provider = {
            "name": "The login of a company with a rather long name and several divisions",
            "issuer": "https://login.a-company-with-a-rather-long-name.example/realms/everyone",
            "client_id": "entrepot",
            "client_secret": "a secret",
            "email_domains": ["a-company-with-a-rather-long-name.example", "company.example"],
        }
        path = f"/v1/organizations/{own['id']}/identity-providers"
        made = http.post(path, json=provider, headers=headers).raise_for_status().json()
        group = {"identity_provider": made["identity_provider"]["id"], "group": "a-long-name/" * 9}
        self.pusher.call("POST", self._groups, group)
        return f"/console/people/{own['id']}"

    @property
    def provider(self) -> str:
        """Return the address of the identity provider's page."""
        people = self.people
        row = self.pusher.call("GET", self._groups)["group_assignments"][0]
        return f"{people}/identity-providers/{row['identity_provider']}"

    @cached_property
    def role(self) -> str:
        """Return the id of a role, which a group of the identity provider has."""
        return str(self.pusher.call("GET", "/v1/roles")["roles"][0]["id"])

    @property
    def _groups(self) -> str:
        return f"/v1/roles/{self.role}/group-assignments"

    def _person_token(self) -> str:
        code = fetch_code(_authorize_page(self.url), PASSWORD)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": _VERIFIER,
            "client_id": "cli",
            "redirect_uri": _OUT_OF_BAND,
        }
        answer = self.pusher.http.post("/v1/oauth/token", data=form).raise_for_status()
        return str(answer.json()["access_token"])

    def set_up_account(self) -> None:
        """Give the account settings and event rules, and the collector something to do."""
        call = self.pusher.call
        scanner = "crn:iam::acme:service-account/a-scanner-with-a-rather-long-name-*"
        call("PATCH", "/v1/registry-settings", {"uncounted_pullers": [scanner]})
        topic = "crn:notifications:local:acme:topic/deployments-of-everything-we-have"
        call("POST", "/v1/topics", {"name": topic.rpartition("/")[2]})
        for types, prefix in (
            (["registry.image.pushed", "registry.tag.*", "registry.lifecycle.completed"], ""),
            (["registry.*"], "shop/frontend/with/a/name/of/some/length"),
        ):
            rule = {"topic": topic, "event_types": types, "repository_prefix": prefix}
            call("POST", "/v1/event-rules", rule)
        key = {"name": "shop", "description": "Seals what the shop and all of its parts store."}
        call("POST", "/v1/keys", key)
        bound = f"/v1/repositories/{self.frontend}/encryption-binding"
        for name in ("platform", "shop"):
            call("PUT", bound, {"kms_key": name})
        self.pusher.fill_stages("shop/api")

    def leave_traces(self) -> None:
        """Delete a repository, and an image and a tag of another, all of them made for that."""
        call = self.pusher.call
        call("DELETE", f"/v1/repositories/{self.pusher.repository('short/lived')}")
        made = self.pusher.image("shop/api", [("gone", 1, "COPY . /app")], "gone", "kept-for-now")
        path = f"/v1/repositories/{self.api}"
        call("DELETE", f"{path}/tags/gone")
        call("DELETE", f"{path}/images/{made['digest']}")
        current = call("GET", f"{path}/tags/stable")["tag"]["digest"]
        call("PUT", f"{path}/tags/passing", {"digest": current})
        call("DELETE", f"{path}/tags/passing")


@contextmanager
def serve_people(data: Path, scale: int = 1) -> Iterator[tuple[Install, Pusher]]:
    """Make an install and serve it; the admin has chosen a password of its own."""
    with installed(
        data, ENTREPOT_FOUNDERS="owners", ENTREPOT_BALANCER_VIPS="127.0.94.0/26"
    ) as install:
        fetch_code(_authorize_page(install.url), install.one_time_password, PASSWORD)
        with httpx.Client(base_url=install.url, timeout=60) as http:
            answer = http.post(
                "/v1/oauth/token",
                data={"grant_type": "client_credentials"},
                auth=(install.access_key_id, install.secret),
            )
            answer.raise_for_status()
            yield install, Pusher(http, answer.json()["access_token"], scale, data)


@contextmanager
def serve_world(data: Path, scale: int = 1024) -> Iterator[World]:
    """Serve such an install, filled."""
    with serve_people(data, scale) as (install, pusher):
        yield _filled(install, pusher)


def _authorize_page(url: str) -> str:
    query = {
        "response_type": "code",
        "client_id": "cli",
        "redirect_uri": _OUT_OF_BAND,
        "code_challenge": _CHALLENGE,
        "code_challenge_method": "S256",
    }
    return str(httpx.URL(f"{url}/v1/oauth/authorize", params=query))


def _filled(install: Install, pusher: Pusher) -> World:
    base = [("debian", 28.4, "debian.sh --arch 'amd64' out/ 'bookworm'")]
    arm = [("debian-arm", 27.9, "debian.sh --arch 'arm64' out/ 'bookworm'")]
    name = "shop/frontend"
    frontend = pusher.repository(name, description="What customers see. Built from main.")

    def build(number: int, start: Sequence[tuple[str, float, str]], arch: str) -> Descriptor:
        steps = [
            *start,
            (f"node-{arch}", 41.2, "RUN apt-get install -y --no-install-recommends nodejs tini"),
            (f"modules-{arch}-{number // 2}", 17.8, "COPY --from=build /src/node_modules /app/"),
            (f"app-{arch}-{number}", 3.6, "COPY --from=build /src/dist /app/dist"),
        ]
        return pusher.image(name, steps, architecture=arch)

    older: Descriptor = {}
    newest: Descriptor = {}
    for number in range(1, 5):
        older = newest
        parts = [build(number, base, "amd64"), build(number, arm, "arm64")]
        tags = (f"1.{number}", *(("latest",) if number == 4 else ()))
        newest = pusher.index(name, parts, *tags)
        pusher.age(50)
    pusher.index(name, [build(9, base, "amd64")])  # untagged
    sbom = pusher.attach(name, newest, SBOM, 0.4, PACKAGES)
    pusher.attach(name, newest, SIGNATURE, 0.004)
    pusher.attach(name, sbom, SIGNATURE, 0.004)
    pusher.attach(name, newest, ATTESTATION, 0.012)
    python = ("python", 16.1, "RUN make -j altinstall")
    for repository, own, text in (
        ("shop/api", 9.4, "Orders, stock and prices."),
        ("shop/worker", 6.2, ""),
        ("data/reports", 31.0, "Nightly."),
    ):
        pusher.repository(repository, **({"description": text} if text else {}))
        steps = [*base, python, (repository, own, "COPY . /app")]
        pusher.image(repository, steps, "2026.11", "stable")
        pusher.age(3)
    pusher.repository("base/python", tag_mutability="immutable")
    pusher.image("base/python", [*base, python], "3.13")
    (api,) = pusher.call("GET", "/v1/repositories?name=shop/api")["repositories"]
    return World(install, pusher, frontend, newest["digest"], older["digest"], api["id"])
