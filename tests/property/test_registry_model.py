"""The whole registry, on two workers, against `Model` after every step.

``SOAK=20`` in the environment makes every machine run twenty times as many examples.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cloudcore.clock import uuid7
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.repositories import add_account
from registry.oci.digest import ALGORITHMS, digest_of
from registry.oci.media_types import DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST
from tests.inprocess import Answer, Body, Client, hang_up
from tests.property.model import (
    CREATED,
    Condition,
    Document,
    Expected,
    Model,
    check,
    described,
    descriptor,
)
from tests.property.surroundings import Surroundings, surroundings
from tests.recount import (
    check_counters,
    manifest_sizes,
    object_ids,
    repository_counters,
    upload_ids,
)

SOAK: Final = int(os.environ.get("SOAK", "1"))
WORDS: Final = ("app", "blobs/uploads", "fixed")
FIXED: Final = "fixed"
"""The repository whose tags do not move, but for those of `EXCLUSION`."""
EXCLUSION: Final = "moving-*"
CONTENTS: Final = (b"", b"a", b"config", b"layer" * 50, bytes(range(256)) * 4)
TAGS: Final = ("v1", "v2", "latest", "moving-1")

REPOSITORIES = st.sampled_from(WORDS)
DATA = st.sampled_from(CONTENTS)
ALGORITHM = st.sampled_from(ALGORITHMS)
TAG = st.sampled_from(TAGS)


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
        self.documents: list[Document] = []
        self.worker = 0
        self.clients: list[Client] = []

    @initialize()
    def open(self) -> None:
        clock = self.around.workers[0].clock
        first = self.around.workers[0]
        write = first.ctx.database.write
        self.around.run(write(add_account, uuid7(clock()), self.account, clock()))
        here = [replace(worker, account=self.account) for worker in self.around.workers]
        self.around.run(here[0].add_immutable(FIXED, EXCLUSION))
        repository = self.model.push_to(FIXED)
        repository.is_immutable, repository.exclusions = True, (EXCLUSION,)
        self.clients = [Client(DataPlane(one.ctx, OpenAccess(self.account))) for one in here]

    def send(
        self, method: str, path: str, body: Body = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request for a path below ``/v2/<account>/`` to the worker whose turn it is."""
        target = path if path.startswith("/v2") else f"/v2/{self.account}/{path}"
        client = self.clients[self.worker]
        return self.around.run(client.request(method, target, body, headers))

    @rule()
    def switch_worker(self) -> None:
        self.worker = 1 - self.worker

    # Blobs

    @rule(name=REPOSITORIES, data=DATA, algorithm=ALGORITHM, lies=st.booleans())
    def push_blob(self, name: str, data: bytes, algorithm: str, lies: bool) -> None:
        digest = digest_of(data + b"!" if lies else data, algorithm)
        answer = self.send("POST", f"{name}/blobs/uploads/?digest={digest}", data)
        self.model.push_to(name)
        if lies:
            check(answer, Expected(400, "DIGEST_INVALID"))
            return
        check(answer, CREATED)
        self.model.add_blob(name, data, digest)

    @rule(name=REPOSITORIES, data=DATA, algorithm=ALGORITHM, source=st.none() | REPOSITORIES)
    def mount(self, name: str, data: bytes, algorithm: str, source: str | None) -> None:
        digest = digest_of(data, algorithm)
        query = f"mount={digest}" + (f"&from={self.account}/{source}" if source else "")
        answer = self.send("POST", f"{name}/blobs/uploads/?{query}")
        if self.model.mount(name, digest, source):
            check(answer, CREATED)
            assert answer.headers["docker-content-digest"] == digest
        else:
            check(answer, Expected(202))
            self.uploads.append(Upload(answer.headers["location"], name))

    @rule(name=REPOSITORIES, data=DATA, algorithm=ALGORITHM)
    def delete_blob(self, name: str, data: bytes, algorithm: str) -> None:
        digest = digest_of(data, algorithm)
        expected = self.model.delete_blob(name, digest)
        check(self.send("DELETE", f"{name}/blobs/{digest}"), expected)

    # Uploads

    @rule(name=REPOSITORIES, algorithm=st.none() | ALGORITHM)
    def start_upload(self, name: str, algorithm: str | None) -> None:
        query = f"?digest-algorithm={algorithm}" if algorithm else ""
        answer = self.send("POST", f"{name}/blobs/uploads/{query}")
        check(answer, Expected(202))
        self.model.push_to(name)
        self.uploads.append(Upload(answer.headers["location"], name))

    @precondition(lambda self: self.uploads)
    @rule(
        data=st.data(),
        part=DATA,
        how=st.sampled_from(["streamed", "in parts", "placed", "misplaced", "cut", "wrong length"]),
    )
    def append(self, data: st.DataObject, part: bytes, how: str) -> None:
        upload = data.draw(st.sampled_from(self.uploads))
        before = len(upload.data)
        first = before + (7 if how == "misplaced" else 0)
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

    @precondition(lambda self: self.uploads)
    @rule(data=st.data(), part=DATA, algorithm=ALGORITHM, how=st.sampled_from("abcde"))
    def finish(self, data: st.DataObject, part: bytes, algorithm: str, how: str) -> None:
        upload = data.draw(st.sampled_from(self.uploads))
        whole = upload.data + part
        digest = digest_of(whole, algorithm)
        headers: dict[str, str] = {}
        if how == "a":  # bytes that are not what they are said to be end the session
            answer = self.send("PUT", f"{upload.location}?digest={digest_of(whole + b'!')}", part)
            check(answer, Expected(400, "DIGEST_INVALID"))
            self.uploads.remove(upload)
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

    @precondition(lambda self: self.uploads)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        upload = data.draw(st.sampled_from(self.uploads))
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
        match data.draw(st.integers(0, 5)):
            case 0:
                return Condition(is_new=True)
            case 1:
                repository = self.model.repositories.get(name)
                known = [to[1] for to in repository.tags.values()] if repository else []
                return Condition(match=data.draw(st.sampled_from([*known, digest_of(b"other")])))
            case _:
                return Condition()

    def draw_contents(self, data: st.DataObject, name: str) -> list[bytes]:
        """Draw contents of an image: mostly what the repository has."""
        here = [blob for blob in CONTENTS if self.model.has_blob(name, digest_of(blob))]
        pool = st.sampled_from(here) if here and data.draw(st.integers(0, 7)) else DATA
        return data.draw(st.lists(pool, min_size=1, max_size=4))

    def known_algorithm(self, data: st.DataObject, content: bytes) -> str:
        """Draw an algorithm, mostly one the account has verified `content` with."""
        known = [a for a in ALGORITHMS if self.model.canonical(digest_of(content, a))]
        return data.draw(st.sampled_from(known) if data.draw(st.integers(0, 7)) else ALGORITHM)

    @rule(
        data=st.data(),
        name=REPOSITORIES,
        media_type=st.sampled_from([OCI_MANIFEST, DOCKER_MANIFEST]),
        note=st.integers(0, 2),
    )
    def put_image(
        self,
        data: st.DataObject,
        name: str,
        media_type: str,
        note: int,
    ) -> None:
        config, *layers = self.draw_contents(data, name)
        document: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": descriptor("application/x-config", config),
            "layers": [
                descriptor("application/x-layer", layer, self.known_algorithm(data, layer))
                for layer in layers
            ],
            "annotations": {"note": str(note)},
        }
        if data.draw(st.booleans()):
            subjects = [*self.documents[-3:], Document(b"nowhere", OCI_MANIFEST)]
            subject = data.draw(st.sampled_from(subjects))
            document["subject"] = descriptor(subject.media_type, subject.body, data.draw(ALGORITHM))
            document["artifactType"] = data.draw(st.sampled_from(["application/x-sbom", ""]))
        self.put(data, name, Document(json.dumps(document).encode(), media_type))

    @precondition(lambda self: self.documents)
    @rule(data=st.data(), name=REPOSITORIES)
    def put_index(self, data: st.DataObject, name: str) -> None:
        known = self.model.repositories.get(name)
        here = list(known.manifests.values()) if known else []
        pool = here if here and data.draw(st.integers(0, 7)) else self.documents
        children = data.draw(st.lists(st.sampled_from(pool), max_size=3))
        listed = [
            descriptor(child.media_type, child.body, self.known_algorithm(data, child.body))
            for child in children
        ]
        document = {"schemaVersion": 2, "manifests": listed}
        self.put(data, name, Document(json.dumps(document).encode(), OCI_INDEX))

    @precondition(lambda self: self.documents)
    @rule(data=st.data(), name=REPOSITORIES)
    def put_again(self, data: st.DataObject, name: str) -> None:
        self.put(data, name, data.draw(st.sampled_from(self.documents)))

    @rule(name=REPOSITORIES, tag=TAG)
    def delete_tag(self, name: str, tag: str) -> None:
        expected = self.model.delete_tag(name, tag)
        check(self.send("DELETE", f"{name}/manifests/{tag}"), expected)

    @precondition(lambda self: self.documents)
    @rule(data=st.data(), name=REPOSITORIES, algorithm=ALGORITHM)
    def delete_manifest(self, data: st.DataObject, name: str, algorithm: str) -> None:
        digest = digest_of(data.draw(st.sampled_from(self.documents)).body, algorithm)
        expected = self.model.delete_manifest(name, digest)
        check(self.send("DELETE", f"{name}/manifests/{digest}"), expected)

    # What everyone sees

    @invariant()
    def blobs_are_as_in_the_model(self) -> None:
        for name in WORDS:
            for data in CONTENTS if self.clients else ():
                digest = digest_of(data)
                answer = self.send("GET", f"{name}/blobs/{digest}")
                if self.model.has_blob(name, digest):
                    assert (answer.status, answer.body) == (200, data)
                else:
                    is_known = name in self.model.repositories
                    check(answer, Expected(404, "BLOB_UNKNOWN" if is_known else "NAME_UNKNOWN"))

    @invariant()
    def uploads_are_as_in_the_model(self) -> None:
        for upload in self.uploads:
            answer = self.send("GET", upload.location)
            assert answer.status == 204
            assert answer.headers["range"] == f"0-{max(0, len(upload.data) - 1)}"

    @invariant()
    def manifests_and_tags_are_as_in_the_model(self) -> None:
        for name, repository in self.model.repositories.items():
            for digest, document in repository.manifests.items():
                answer = self.send("GET", f"{name}/manifests/{digest}")
                assert (answer.status, answer.body) == (200, document.body)
                assert answer.headers["content-type"] == document.media_type
            for tag in TAGS:
                answer = self.send("HEAD", f"{name}/manifests/{tag}")
                pushed = repository.tags.get(tag, (None, None))[1]
                assert answer.headers.get("docker-content-digest") == pushed
            for document in self.documents:
                if document.digest not in repository.manifests:
                    answer = self.send("GET", f"{name}/manifests/{document.digest}")
                    check(answer, Expected(404, "MANIFEST_UNKNOWN"))

    @invariant()
    def lists_are_as_in_the_model(self) -> None:
        if not self.clients:
            return
        names = sorted(f"{self.account}/{name}" for name in self.model.repositories)
        assert self.walk("/v2/_catalog", "repositories") == names
        for name, repository in self.model.repositories.items():
            assert self.walk(f"/v2/{self.account}/{name}/tags/list", "tags") == sorted(
                repository.tags
            )

    def walk(self, path: str, field: str) -> list[str]:
        """Return all entries of a list, read in pages of one to three."""
        found: list[str] = []
        target = f"{path}?n={1 + len(self.documents) % 3}"
        while target:
            answer = self.send("GET", target)
            assert answer.status == 200
            found += answer.json()[field]
            link = answer.headers.get("link", "<>")
            target = link[1 : link.index(">")]
        return found

    @invariant()
    def referrers_are_as_in_the_model(self) -> None:
        subjects = {str(document.digest) for document in self.documents[-4:]}
        subjects |= {document.subject for document in self.documents if document.subject}
        for name in WORDS:
            for subject in subjects:
                for wanted in ("", "application/x-sbom"):
                    query = f"?artifactType={wanted}" if wanted else ""
                    answer = self.send("GET", f"{name}/referrers/{subject}{query}")
                    expected = self.model.referrers(name, subject, wanted)
                    assert answer.status == 200
                    assert answer.json()["manifests"] == [
                        described(document) for document in expected
                    ]

    @invariant()
    def the_books_are_right(self) -> None:
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

    def teardown(self) -> None:
        """Check that the store holds what the rows say, and nothing else."""
        query, store = self.around.query, self.around.store
        assert {stored.object_id for stored in store.list_objects()} == object_ids(query)
        assert {stored.object_id for stored in store.list_staged()} <= upload_ids(query)


@pytest.mark.timeout(120 * SOAK)
@pytest.mark.parametrize(
    ("kind", "examples"),
    [("sqlite", 40), pytest.param("postgresql", 6, marks=pytest.mark.postgresql)],
)
def test_a_registry_is_its_model(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, examples: int
) -> None:
    url: str = request.getfixturevalue(f"{kind}_database")
    with surroundings(url, tmp_path / "blobs") as around:
        run_state_machine_as_test(
            lambda: RegistryMachine(around),  # type: ignore[arg-type] # any factory will do
            settings=settings(
                max_examples=examples * SOAK,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
