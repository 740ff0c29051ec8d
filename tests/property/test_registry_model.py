"""The whole registry, on two workers, against `Model` after every step.

``SOAK=20`` in the environment makes every machine walk twenty times as often.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cloudcore.clock import uuid7
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.repositories.repository import add_account
from registry.oci.digest import ALGORITHMS, digest_of
from registry.oci.media_types import DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST
from registry.settings.groups import Limits
from tests.inprocess import Answer, Body, Client, add_platform_keys, hang_up
from tests.property.machines import run_machine
from tests.property.model import (
    CREATED,
    Condition,
    Document,
    Expected,
    Model,
    Repository,
    check,
    described,
    descriptor,
)
from tests.property.registry_choices import (
    ACTIONS,
    ALGORITHM,
    CONTENTS,
    DATA,
    EXCLUSION,
    FIXED,
    HOW_TO_APPEND,
    NOWHERE,
    REPOSITORIES,
    SEALS,
    TAG,
    TAGS,
    WORDS,
)
from tests.property.surroundings import Surroundings, surroundings
from tests.recount import (
    check_counters,
    manifest_sizes,
    object_ids,
    repository_counters,
    upload_ids,
)
from tests.soak import time_limit


@dataclass
class Upload:
    """An open session as its client knows it."""

    location: str
    repository: str
    data: bytes = b""


class RegistryMachine(RuleBasedStateMachine):
    """Requests of every kind; the server and the model must agree on each and after each."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__()
        self.around = around
        self.account = next(around.accounts)
        self.model = Model()
        self.uploads: list[Upload] = []
        self.documents = [NOWHERE]
        self.worker = 0
        self.touched = FIXED
        self.clients: list[Client] = []

    @initialize(filled=st.sampled_from([True, True, False]), seals=SEALS)
    def open(self, filled: bool, seals: tuple[bool, bool]) -> None:
        clock = self.around.workers[0].clock
        first = self.around.workers[0]
        write = first.ctx.database.write
        self.around.run(write(add_account, uuid7(clock()), self.account, clock()))
        self.around.run(add_platform_keys(first.ctx.database, clock()))
        here = [
            replace(worker, account=self.account, ctx=replace(worker.ctx, seals=each))
            for worker, each in zip(self.around.workers, seals, strict=True)
        ]
        self.around.run(here[0].add_immutable(FIXED, EXCLUSION))
        repository = self.model.push_to(FIXED)
        repository.is_immutable, repository.exclusions = True, (EXCLUSION,)
        self.clients = [Client(DataPlane(one.ctx, OpenAccess(self.account))) for one in here]
        for name, data in itertools.product(WORDS, CONTENTS) if filled else ():
            self.push(name, data, ALGORITHMS[len(data) % 3])

    def send(
        self, method: str, path: str, body: Body = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request for a path below ``/v2/<account>/`` to the worker whose turn it is."""
        target = path if path.startswith("/v2") else f"/v2/{self.account}/{path}"
        if method not in ("GET", "HEAD"):
            self.touched = next(name for name in WORDS if f"/{self.account}/{name}/" in target)
        client = self.clients[self.worker]
        return self.around.run(client.request(method, target, body, headers))

    @rule(data=st.data(), action=st.sampled_from(ACTIONS))
    def act(self, data: st.DataObject, action: str) -> None:
        getattr(self, action)(data)

    def switch_worker(self, data: st.DataObject) -> None:
        del data
        self.worker = 1 - self.worker

    # Blobs

    def push_blob(self, data: st.DataObject) -> None:
        name, content, algorithm = data.draw(REPOSITORIES), data.draw(DATA), data.draw(ALGORITHM)
        if likely(data):
            self.push(name, content, algorithm)
            return
        lie = digest_of(content + b"!", algorithm)
        answer = self.send("POST", f"{name}/blobs/uploads/?digest={lie}", content)
        check(answer, Expected(400, "DIGEST_INVALID"))
        self.model.push_to(name)

    def push(self, name: str, content: bytes, algorithm: str) -> None:
        """Push a blob in one request."""
        digest = digest_of(content, algorithm)
        check(self.send("POST", f"{name}/blobs/uploads/?digest={digest}", content), CREATED)
        self.model.add_blob(name, content, digest)

    def mount(self, data: st.DataObject) -> None:
        name, content = data.draw(REPOSITORIES), data.draw(DATA)
        source = data.draw(st.none() | REPOSITORIES)
        digest = digest_of(content, self.known_algorithm(data, content))
        query = f"mount={digest}" + (f"&from={self.account}/{source}" if source else "")
        answer = self.send("POST", f"{name}/blobs/uploads/?{query}")
        if self.model.mount(name, digest, source):
            check(answer, CREATED)
            assert answer.headers["docker-content-digest"] == digest
        else:
            check(answer, Expected(202))
            self.uploads.append(Upload(answer.headers["location"], name))

    def delete_blob(self, data: st.DataObject) -> None:
        name, content = data.draw(REPOSITORIES), data.draw(DATA)
        digest = digest_of(content, self.known_algorithm(data, content))
        expected = self.model.delete_blob(name, digest)
        check(self.send("DELETE", f"{name}/blobs/{digest}"), expected)

    # Uploads

    def start_upload(self, data: st.DataObject) -> None:
        name, algorithm = data.draw(REPOSITORIES), data.draw(st.none() | ALGORITHM)
        query = f"?digest-algorithm={algorithm}" if algorithm else ""
        answer = self.send("POST", f"{name}/blobs/uploads/{query}")
        check(answer, Expected(202))
        self.model.push_to(name)
        self.uploads.append(Upload(answer.headers["location"], name))

    def draw_upload(self, data: st.DataObject) -> Upload:
        """Draw an open session, opened now when there is none."""
        if not self.uploads:
            self.start_upload(data)
        return data.draw(st.sampled_from(self.uploads))

    def append(self, data: st.DataObject) -> None:
        upload, part, how = self.draw_upload(data), data.draw(DATA), data.draw(HOW_TO_APPEND)
        before = len(upload.data)
        gap = data.draw(st.sampled_from([-1, 1])) if before else 1
        first = before + (gap if how == "misplaced" else 0)
        last = first + len(part) - (0 if how == "wrong length" else 1)
        headers = {"content-range": f"{first}-{last}"}
        body: Body = part
        expected = Expected(202)
        match how:
            case "streamed":
                headers = {}
            case "in parts":
                headers, body = {}, [part[:1], part[1:]]
            case "cut":
                headers, body, expected = {}, hang_up(part[:3]), Expected(400, "SIZE_INVALID")
                part = part[:3]
            case "wrong length" if part:
                body = [part[:1], part[1:]] if data.draw(st.booleans()) else part
                expected = Expected(400, "SIZE_INVALID")
            case _ if not part and how == "placed":
                headers = {}
            case "misplaced" if part:
                expected = Expected(416, "BLOB_UPLOAD_INVALID")
            case "misplaced" | "wrong length":
                return  # no bytes have no place
        answer = self.send("PATCH", upload.location, body, headers)
        check(answer, expected)
        if how not in ("misplaced", "wrong length"):
            upload.data += part
        if answer.status in (202, 416):
            assert answer.headers["location"] == upload.location
            assert answer.headers["range"] == f"0-{max(0, len(upload.data) - 1)}"

    def finish(self, data: st.DataObject) -> None:
        upload, part = self.draw_upload(data), data.draw(DATA)
        algorithm, how = data.draw(ALGORITHM), data.draw(st.sampled_from("abcdefgh"))
        whole = upload.data + part
        digest = digest_of(whole, algorithm)
        headers: dict[str, str] = {}
        if how == "a":  # bytes that are not what they are said to be end the session
            answer = self.send("PUT", f"{upload.location}?digest={digest_of(whole + b'!')}", part)
            check(answer, Expected(400, "DIGEST_INVALID"))
            self.uploads.remove(upload)
            check(self.send("GET", upload.location), Expected(404, "BLOB_UPLOAD_UNKNOWN"))
            return
        if how == "b":
            check(self.send("PUT", upload.location, part), Expected(400, "DIGEST_INVALID"))
            return
        if how == "c" and part:
            headers = {"content-range": f"{len(whole)}-{len(whole) + len(part) - 1}"}
            answer = self.send("PUT", f"{upload.location}?digest={digest}", part, headers)
            check(answer, Expected(416, "BLOB_UPLOAD_INVALID"))
            return
        if how == "d" and part:
            headers = {"content-range": f"{len(upload.data)}-{len(whole) - 1}"}
        check(self.send("PUT", f"{upload.location}?digest={digest}", part, headers), CREATED)
        self.model.add_blob(upload.repository, whole, digest)
        self.uploads.remove(upload)

    def cancel(self, data: st.DataObject) -> None:
        upload = self.draw_upload(data)
        self.uploads.remove(upload)
        check(self.send("DELETE", upload.location), Expected(204))
        for method in ("GET", "PATCH", "DELETE"):
            gone = self.send(method, upload.location)
            check(gone, Expected(404, "BLOB_UPLOAD_UNKNOWN"))

    # Manifests

    def put(self, data: st.DataObject, name: str, document: Document) -> None:
        """Put a document in one of the many ways there are."""
        self.documents.append(document)
        headers = {"content-type": document.media_type}
        condition = self.draw_condition(data, name)
        if condition.match:
            headers["if-match"] = f'"{condition.match}"'
        if condition.is_new:
            headers["if-none-match"] = "*"
        if data.draw(st.booleans()):
            tags: tuple[str, ...] = (data.draw(TAG),)
            pushed, reference, query = document.digest, tags[0], ""
        else:
            tags = tuple(data.draw(st.lists(TAG, max_size=3, unique=True)))
            pushed = digest_of(document.body, data.draw(ALGORITHM))
            reference = pushed
            query = "?" + "&".join(f"tag={tag}" for tag in tags) if tags else ""
        expected = self.model.put_manifest(name, document, pushed, tags, condition)
        path = f"{name}/manifests/{reference}{query}"
        answer = self.send("PUT", path, document.body, headers)
        check(answer, expected)
        if expected is CREATED:
            assert answer.headers["docker-content-digest"] == pushed
            assert answer.headers.get("oci-subject") == document.subject
            assert answer.headers.get("oci-tag", "") == (", ".join(tags) if query else "")

    def draw_condition(self, data: st.DataObject, name: str) -> Condition:
        """Draw what a PUT asks of its tags: mostly nothing."""
        match data.draw(st.integers(0, 7)):
            case 6:
                return Condition(is_new=True)
            case 7:
                repository = self.model.repositories.get(name)
                known = [to[1] for to in repository.tags.values()] if repository else []
                return Condition(match=data.draw(st.sampled_from([*known, digest_of(b"other")])))
            case _:
                return Condition()

    def draw_contents(self, data: st.DataObject, name: str) -> list[bytes]:
        """Draw contents of an image: mostly what the repository has."""
        here = [blob for blob in CONTENTS if self.model.has_blob(name, digest_of(blob))]
        pool = st.sampled_from(here) if here and likely(data) else DATA
        return data.draw(st.lists(pool, min_size=1, max_size=4))

    def known_algorithm(self, data: st.DataObject, content: bytes) -> str:
        """Draw an algorithm, mostly one the account has verified `content` with."""
        known = [a for a in ALGORITHMS if self.model.canonical(digest_of(content, a))]
        return data.draw(st.sampled_from(known) if likely(data) else ALGORITHM)

    def put_image(self, data: st.DataObject) -> None:
        name = data.draw(REPOSITORIES)
        media_type = data.draw(st.sampled_from([OCI_MANIFEST, DOCKER_MANIFEST]))
        config, *layers = self.draw_contents(data, name)
        document: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": descriptor("application/x-config", config),
            "layers": [
                descriptor("application/x-layer", layer, self.known_algorithm(data, layer))
                for layer in layers
            ],
            "annotations": {"note": data.draw(st.sampled_from("12"))},
        }
        if data.draw(st.booleans()):
            subject = data.draw(st.sampled_from(self.documents[:1] + self.documents[-3:]))
            document["subject"] = descriptor(subject.media_type, subject.body, data.draw(ALGORITHM))
            document["artifactType"] = data.draw(st.sampled_from(["application/x-sbom", ""]))
        self.put(data, name, Document(json.dumps(document).encode(), media_type))

    def draw_document(self, data: st.DataObject, name: str) -> Document:
        """Draw a manifest: mostly one the repository has."""
        known = self.model.repositories.get(name)
        here = list(known.manifests.values()) if known else []
        pool = here if here and likely(data) else self.documents
        return data.draw(st.sampled_from(pool))

    def put_index(self, data: st.DataObject) -> None:
        name = data.draw(REPOSITORIES)
        known = self.model.repositories.get(name)
        here = list(known.manifests.values()) if known else []
        pool = here if here and likely(data) else self.documents
        children = data.draw(st.lists(st.sampled_from(pool), max_size=3))
        listed = [
            descriptor(child.media_type, child.body, self.known_algorithm(data, child.body))
            for child in children
        ]
        # Build caches and checkpoints list blobs too, and any media type.
        for content in self.draw_contents(data, name) if data.draw(st.booleans()) else ():
            media_type = data.draw(st.sampled_from(["application/x-layer", OCI_MANIFEST]))
            algorithm = self.known_algorithm(data, content)
            listed.append(descriptor(media_type, content, algorithm))
        document = {"schemaVersion": 2, "manifests": listed}
        self.put(data, name, Document(json.dumps(document).encode(), OCI_INDEX))

    def push_document(self, data: st.DataObject) -> None:
        """Push the bytes of a manifest as a blob: a digest may name both."""
        name = data.draw(REPOSITORIES)
        self.push(name, self.draw_document(data, name).body, data.draw(ALGORITHM))

    def put_again(self, data: st.DataObject) -> None:
        name = data.draw(REPOSITORIES)
        self.put(data, name, self.draw_document(data, name))

    def delete_tag(self, data: st.DataObject) -> None:
        name = data.draw(REPOSITORIES)
        known = self.model.repositories.get(name)
        here = list(known.tags) if known else []
        tag = data.draw(st.sampled_from(here) if here and likely(data) else TAG)
        expected = self.model.delete_tag(name, tag)
        check(self.send("DELETE", f"{name}/manifests/{tag}"), expected)

    def delete_manifest(self, data: st.DataObject) -> None:
        name = data.draw(REPOSITORIES)
        body = self.draw_document(data, name).body
        digest = digest_of(body, self.known_algorithm(data, body))
        expected = self.model.delete_manifest(name, digest)
        check(self.send("DELETE", f"{name}/manifests/{digest}"), expected)

    # What everyone sees: after each step in the repository it touched, at the end in all

    @invariant()
    def the_server_agrees(self) -> None:
        if self.clients:
            self.compare(self.touched)
            self.compare_lists()
            self.compare_books()

    def teardown(self) -> None:
        """Compare everything; the store must hold what the rows say, and nothing else."""
        for name in WORDS if self.clients else ():
            self.compare(name)
        query, store = self.around.query, self.around.store
        assert {stored.object_id for stored in store.files.list_objects()} == object_ids(query)
        assert {stored.object_id for stored in store.files.list_staged()} <= upload_ids(query)

    def compare(self, name: str) -> None:
        """Compare what the server shows of a repository with the model."""
        self.compare_blobs(name)
        self.compare_manifests(name, self.model.repositories.get(name, Repository()))
        self.compare_referrers(name)

    def compare_blobs(self, name: str) -> None:
        for data in CONTENTS:
            digest = digest_of(data)
            answer = self.send("GET", f"{name}/blobs/{digest}")
            if self.model.has_blob(name, digest):
                assert (answer.status, answer.body) == (200, data)
            else:
                is_known = name in self.model.repositories
                check(answer, Expected(404, "BLOB_UNKNOWN" if is_known else "NAME_UNKNOWN"))
        for upload in self.uploads:
            answer = self.send("GET", upload.location)
            assert answer.status == 204
            assert answer.headers["range"] == f"0-{max(0, len(upload.data) - 1)}"

    def compare_manifests(self, name: str, repository: Repository) -> None:
        for digest, document in repository.manifests.items():
            answer = self.send("GET", f"{name}/manifests/{digest}")
            assert (answer.status, answer.body) == (200, document.body)
            assert answer.headers["content-type"] == document.media_type
        for tag in TAGS:
            answer = self.send("HEAD", f"{name}/manifests/{tag}")
            pushed = repository.tags.get(tag, (None, None))[1]
            assert (answer.status == 200) == (pushed is not None)
            assert answer.headers.get("docker-content-digest") == pushed
        for document in self.documents[-3:]:
            if document.digest not in repository.manifests:
                assert self.send("HEAD", f"{name}/manifests/{document.digest}").status == 404

    def compare_referrers(self, name: str) -> None:
        subjects = {str(document.digest) for document in self.documents[-2:]}
        subjects |= {document.subject for document in self.documents[-4:] if document.subject}
        for subject, wanted in itertools.product(subjects, ("", "application/x-sbom")):
            query = f"?artifactType={wanted}" if wanted else ""
            answer = self.send("GET", f"{name}/referrers/{subject}{query}")
            expected = self.model.referrers(name, subject, wanted)
            assert answer.status == 200
            assert answer.json()["manifests"] == [described(document) for document in expected]

    def compare_lists(self) -> None:
        names = sorted(f"{self.account}/{name}" for name in self.model.repositories)
        assert self.walk("/v2/_catalog", "repositories") == names
        if repository := self.model.repositories.get(self.touched):
            tags = self.walk(f"/v2/{self.account}/{self.touched}/tags/list", "tags")
            assert tags == sorted(repository.tags)

    def walk(self, path: str, field: str) -> list[str]:
        """Return all entries of a list, read in pages of one to three."""
        found: list[str] = []
        size = 1 + len(self.documents) % 3
        target = f"{path}?n={size}"
        while target:
            answer = self.send("GET", target)
            assert answer.status == 200
            page = answer.json()[field]
            found += page
            assert len(found) == len(set(found)), "the list goes round in circles"
            link = answer.headers.get("link", "<>")
            target = link[1 : link.index(">")]
            assert len(page) == size if target else len(page) <= size
        return found

    def compare_books(self) -> None:
        query = self.around.query
        check_counters(query, self.account)
        assert repository_counters(query, self.account) == {
            name: self.model.counters(name) for name in self.model.repositories
        }
        assert manifest_sizes(query, self.account) == {
            (name, digest): self.model.size_of(name, document)
            for name, repository in self.model.repositories.items()
            for digest, document in repository.manifests.items()
        }


def likely(data: st.DataObject) -> bool:
    """Draw a truth that is mostly true."""
    return data.draw(st.integers(0, 7)) < 7


@time_limit(600)  # a failure takes minutes to be made small
@pytest.mark.parametrize("inline_max_bytes", [0, 1024])
@pytest.mark.parametrize(
    ("kind", "walks"),
    [("sqlite", 9), pytest.param("postgresql", 2, marks=pytest.mark.postgresql)],
)
def test_a_registry_is_its_model(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    walks: int,
    inline_max_bytes: int,
) -> None:
    url: str = request.getfixturevalue(f"{kind}_database")
    limits = Limits(inline_max_bytes=inline_max_bytes)
    with surroundings(url, tmp_path / "blobs", limits) as around:
        run_machine(lambda: RegistryMachine(around), walks, 40)
