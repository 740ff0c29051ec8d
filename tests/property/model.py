"""A registry as dictionaries: what each request of the state machine must get, and must change."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

from registry.oci.digest import Digest, digest_of
from registry.oci.media_types import INDEX_TYPES
from tests.inprocess import Answer


class Expected(NamedTuple):
    """A status, and the code of its errors with how many times it is told."""

    status: int
    code: str = ""
    times: int = 1


CREATED = Expected(201)
ACCEPTED = Expected(202)
NAME_UNKNOWN = Expected(404, "NAME_UNKNOWN")


class Document(NamedTuple):
    """A manifest or index as the machine builds it."""

    body: bytes
    media_type: str

    @property
    def digest(self) -> Digest:
        """Return its sha256."""
        return digest_of(self.body)

    @property
    def is_index(self) -> bool:
        """Say whether it lists manifests."""
        return self.media_type in INDEX_TYPES

    def field(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return a field of the document."""
        return _fields(self.body).get(name)

    @property
    def parts(self) -> list[str]:
        """Return the digests it refers to: its children, or its config and layers."""
        if self.is_index:
            return [item["digest"] for item in self.field("manifests")]
        return [item["digest"] for item in (self.field("config"), *self.field("layers"))]

    @property
    def subject(self) -> str | None:
        """Return the digest of what it is about."""
        subject = self.field("subject")
        return subject["digest"] if subject else None

    @property
    def artifact_type(self) -> str | None:
        """Return its type as referrers tell it."""
        told: str | None = self.field("artifactType")
        return told or (None if self.is_index else self.field("config")["mediaType"])


@cache
def _fields(body: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(body)
    return fields


@dataclass
class Repository:
    """One repository."""

    is_immutable: bool = False
    exclusions: tuple[str, ...] = ()
    blobs: dict[str, int] = field(default_factory=dict)
    """Sizes of the linked blobs by sha256."""
    manifests: dict[str, Document] = field(default_factory=dict)
    """By sha256, in the order of their push."""
    listed_blobs: dict[str, set[str]] = field(default_factory=dict)
    """By the sha256 of a manifest those of the blobs that it refers to itself: an index too."""
    tags: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The sha256 a tag points to, and the digest it was pushed by."""

    def may_move(self, tag: str) -> bool:
        """Say whether a tag may move once it is set."""
        return not self.is_immutable or any(fnmatchcase(tag, glob) for glob in self.exclusions)


class Condition(NamedTuple):
    """What must hold for the tags of a PUT: what they point to now, or that they are not there."""

    match: str | None = None
    is_new: bool = False

    def holds(self, digests: tuple[str, ...]) -> bool:
        """Say whether a tag that has these digests (none: no tag) may be put."""
        if self.is_new and digests:
            return False
        return self.match is None or self.match in digests


@dataclass
class Model:
    """All repositories of one account."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    """sha256 by every other digest that was ever verified."""

    def canonical(self, digest: str) -> str | None:
        """Return the sha256 the account knows for a digest."""
        return digest if digest.startswith("sha256:") else self.aliases.get(digest)

    def push_to(self, name: str) -> Repository:
        """Return a repository, made by the push if need be."""
        return self.repositories.setdefault(name, Repository())

    def add_blob(self, name: str, data: bytes, digest: Digest) -> None:
        """Link a blob that was pushed under `digest`."""
        self.push_to(name).blobs[digest_of(data)] = len(data)
        self.verify(digest, data)

    def verify(self, digest: Digest, data: bytes) -> None:
        """Note a digest that content was verified under."""
        if digest.algorithm != "sha256":
            self.aliases[digest] = digest_of(data)

    def has_blob(self, name: str, digest: str) -> bool:
        """Say whether a repository links a blob."""
        found = self.repositories.get(name)
        return found is not None and self.canonical(digest) in found.blobs

    def mount(self, name: str, digest: str, source: str | None) -> bool:
        """Link a blob from `source`, or from anywhere; say whether that can be done."""
        target = self.push_to(name)
        for candidate in self.repositories if source is None else (source,):
            if self.has_blob(candidate, digest):
                canonical = self.canonical(digest)
                assert canonical is not None
                target.blobs[canonical] = self.repositories[candidate].blobs[canonical]
                return True
        return False

    def delete_blob(self, name: str, digest: str) -> Expected:
        """Remove a link that no manifest needs."""
        if name not in self.repositories:
            return NAME_UNKNOWN
        if not self.has_blob(name, digest):
            return Expected(404, "BLOB_UNKNOWN")
        canonical = self.canonical(digest)
        assert canonical is not None
        if self.references(name, canonical):
            return Expected(405, "UNSUPPORTED")
        del self.repositories[name].blobs[canonical]
        return ACCEPTED

    def references(self, name: str, canonical: str) -> int:
        """Return how many manifests refer to a blob."""
        return sum(canonical in each for each in self.repositories[name].listed_blobs.values())

    def put_manifest(
        self,
        name: str,
        document: Document,
        pushed: Digest,
        tags: tuple[str, ...],
        condition: Condition,
    ) -> Expected:
        """Store a manifest and point tags to it: all of it, or nothing but the repository."""
        repository = self.push_to(name)
        if document.digest not in repository.manifests:
            parts = {part: self.canonical(part) for part in document.parts}
            children = repository.manifests.keys() if document.is_index else set()
            held = {str(each) for each in parts.values() if each not in children}
            missing = {part for part, each in parts.items() if each not in children}
            missing = {part for part in missing if parts[part] not in repository.blobs}
            if missing:
                return Expected(404, "MANIFEST_BLOB_UNKNOWN", len(missing))
        for tag in tags:
            current = repository.tags.get(tag, ())
            if not condition.holds(current):
                return Expected(412, "DENIED")
            if current and current[0] != document.digest and not repository.may_move(tag):
                return Expected(409, "DENIED")
        if document.digest not in repository.manifests:
            repository.manifests[document.digest] = document
            repository.listed_blobs[document.digest] = held
        repository.tags |= dict.fromkeys(tags, (document.digest, pushed))
        for digest in (pushed, digest_of(document.body, "sha512")):
            self.verify(digest, document.body)
        return CREATED

    def delete_tag(self, name: str, tag: str) -> Expected:
        """Remove a tag that may go."""
        repository = self.repositories.get(name)
        if repository is None:
            return NAME_UNKNOWN
        if tag not in repository.tags:
            return Expected(404, "MANIFEST_UNKNOWN")
        if not repository.may_move(tag):
            return Expected(405, "UNSUPPORTED")
        del repository.tags[tag]
        return ACCEPTED

    def delete_manifest(self, name: str, digest: str) -> Expected:
        """Remove a manifest no index lists, and its tags."""
        repository = self.repositories.get(name)
        if repository is None:
            return NAME_UNKNOWN
        canonical = self.canonical(digest)
        if canonical is None or canonical not in repository.manifests:
            return Expected(404, "MANIFEST_UNKNOWN")
        for other in repository.manifests.values():
            if other.is_index and canonical in self.children(repository, other):
                return Expected(405, "UNSUPPORTED")
        del repository.manifests[canonical], repository.listed_blobs[canonical]
        repository.tags = {t: to for t, to in repository.tags.items() if to[0] != canonical}
        return ACCEPTED

    def children(self, repository: Repository, index: Document) -> set[str]:
        """Return the sha256 of the manifests that an index lists."""
        listed = {str(self.canonical(part)) for part in index.parts}
        return listed - repository.listed_blobs[index.digest]

    def referrers(self, name: str, subject: str, artifact_type: str) -> list[Document]:
        """Return the manifests about a subject, under any of its names, oldest first."""
        repository = self.repositories.get(name, Repository())
        wanted = self.canonical(subject) or subject
        return [
            document
            for document in repository.manifests.values()
            if document.subject is not None
            and (self.canonical(document.subject) or document.subject) == wanted
            and artifact_type in ("", document.artifact_type)
        ]

    def counters(self, name: str) -> tuple[int, int, int]:
        """Return images, tags and bytes of a repository."""
        repository = self.repositories[name]
        used = set[str]().union(*repository.listed_blobs.values())
        size = sum(repository.blobs[digest] for digest in used)
        return len(repository.manifests), len(repository.tags), size

    def size_of(self, name: str, document: Document) -> int:
        """Return the bytes of the distinct blobs under a manifest and all its descendants."""
        repository = self.repositories[name]
        under: set[str] = set()
        waiting = [document]
        while waiting:
            one = waiting.pop()
            under |= repository.listed_blobs[one.digest]
            if one.is_index:
                waiting += [repository.manifests[each] for each in self.children(repository, one)]
        return sum(repository.blobs[digest] for digest in under)


def check(answer: Answer, expected: Expected) -> None:
    """Check a status and, of a refusal, its codes."""
    assert answer.status == expected.status, (answer, expected)
    if expected.code:
        assert answer.codes == [expected.code] * expected.times


def descriptor(media_type: str, data: bytes, algorithm: str = "sha256") -> dict[str, Any]:
    """Return a descriptor of content."""
    return {"mediaType": media_type, "digest": digest_of(data, algorithm), "size": len(data)}


def described(document: Document) -> dict[str, Any]:
    """Return a manifest as a list of referrers tells of it."""
    found = descriptor(document.media_type, document.body)
    if document.artifact_type:
        found["artifactType"] = document.artifact_type
    if document.field("annotations"):
        found["annotations"] = document.field("annotations")
    return found
