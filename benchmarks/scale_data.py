"""The rows of a registry of a given size, as they are after three months of pushes.

Of each block of 20 images, four are untagged: the two children of the index after them, one that
nothing references, and the referrer (an SBOM) of the image before it. The other 16 have tags. Each
image that is no index has a config of its own and two of a hundred shared layers. Each small
repository has one image, which the large one has too.

Blobs are rows only, without bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, NamedTuple

BLOCK: Final = 20
"""Images of a block; a registry has a multiple of it."""
SHARED_LAYERS: Final = 100
DAY: Final = 24 * 3600 * 10**6
SPAN: Final = 90 * DAY
"""Microseconds from the first push to the last."""
HANDLE: Final = "acme"
REPOSITORY: Final = "team/app"
LATEST: Final = "v-latest"

_OCI: Final = "application/vnd.oci.image"
MANIFEST_TYPE: Final = f"{_OCI}.manifest.v1+json"
INDEX_TYPE: Final = f"{_OCI}.index.v1+json"
SBOM_TYPE: Final = "application/spdx+json"
_CONFIG_SIZE: Final = 1_500
_LAYER_SIZE: Final = 3_000_000


class Rows(NamedTuple):
    """The rows of one table, as an iterator."""

    table: str
    columns: str
    """Separated by commas."""
    rows: Iterator[tuple[Any, ...]]


class Blob(NamedTuple):
    """A config or a layer."""

    media_type: str
    digest: str
    size: int
    object_id: str


class Image(NamedTuple):
    """A manifest of the repository."""

    number: int
    id: str
    digest: str
    body: bytes
    is_index: bool
    artifact_type: str | None
    subject: str | None
    blobs: Sequence[Blob]
    children: Sequence[Image]
    pushed_at: int

    @property
    def size_bytes(self) -> int:
        """Return the size of its distinct blobs, or of those of its children."""
        blobs = {b.digest: b.size for each in (self, *self.children) for b in each.blobs}
        return sum(blobs.values())


class Contents:
    """The content of a registry with one account, one large repository, and many small ones."""

    def __init__(
        self, account_id: str, images: int, tags: int, repositories: int, now: int
    ) -> None:
        """Plan this many of each; `now` is in microseconds since the epoch.

        Raises:
            ValueError: there are too few for some of each kind.

        """
        if images < 2 * BLOCK or images % BLOCK or tags < 2 * BLOCK or repositories < BLOCK:
            raise ValueError(f"at least {2 * BLOCK} images, by {BLOCK}, and tags, {BLOCK} of all")
        self.account_id = account_id
        self.images = images
        self.tags = tags
        self.repositories = repositories
        self.now = now
        self.repository_id = self.identifier(0, 0)
        self.tombstones = max(BLOCK, images // 10)
        self.gone_tags = max(BLOCK, tags // 10)
        self.moves = max(BLOCK, images // 20)
        """Number of moves of the tag `LATEST`, and of its events after the first."""
        self.deleted_repositories = max(BLOCK, repositories // 10)

    def moment(self, number: int) -> int:
        """Return when the image of this number was pushed, in microseconds since the epoch."""
        return self.now - SPAN + SPAN * number // self.images

    def identifier(self, kind: int, number: int) -> str:
        """Return a UUIDv7, different for each kind and number."""
        text = f"{(self.moment(number)) // 1000:012x}7{kind:03x}8{number:015x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    @staticmethod
    def is_tagged(number: int) -> bool:
        """Return True if the image of this number has tags."""
        return number % BLOCK not in (0, 1, 3, BLOCK - 1)

    @staticmethod
    def is_plain(number: int) -> bool:
        """Return True if the image has tags, but no parents, children or referrers."""
        return 4 <= number % BLOCK < BLOCK - 2

    def image(self, number: int) -> Image:
        """Return the image of this number; greater numbers are newer."""
        place = number % BLOCK
        children = [self.image(number - 2), self.image(number - 1)] if place == 2 else []
        subject = self.image(number - 1).digest if place == BLOCK - 1 else None
        return self._made(1, number, children, subject)

    def copy(self, repository: int) -> Image:
        """Return the only image of a small repository: a copy of one of the large one."""
        image = self.image((repository * BLOCK + 4) % self.images)
        return image._replace(id=self.identifier(7, repository))

    def tombstone(self, number: int) -> Image:
        """Return a deleted image."""
        return self._made(2, number, [], None)

    def _made(
        self, kind: int, number: int, children: Sequence[Image], subject: str | None
    ) -> Image:
        blobs = [] if children else self._blobs(kind, number)
        artifact_type = None if children else SBOM_TYPE if subject else f"{_OCI}.config.v1+json"
        document: dict[str, Any] = {"schemaVersion": 2}
        if children:
            document |= {
                "mediaType": INDEX_TYPE,
                "manifests": [_descriptor(MANIFEST_TYPE, c.digest, len(c.body)) for c in children],
            }
        else:
            config, *layers = (_descriptor(b.media_type, b.digest, b.size) for b in blobs)
            document |= {"mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
        if subject:
            document["artifactType"] = SBOM_TYPE
            document["subject"] = _descriptor(MANIFEST_TYPE, subject, 1)
        document["annotations"] = {"org.opencontainers.image.version": f"{kind}.{number}"}
        body = json.dumps(document).encode()
        return Image(
            number=number,
            id=self.identifier(kind, number),
            digest=digest_of(body),
            body=body,
            is_index=bool(children),
            artifact_type=artifact_type,
            subject=subject,
            blobs=blobs,
            children=children,
            pushed_at=self.moment(number),
        )

    def _blobs(self, kind: int, number: int) -> list[Blob]:
        config = Blob(
            f"{_OCI}.config.v1+json",
            digest_of(f"config {kind} {number}".encode()),
            _CONFIG_SIZE,
            self.identifier(kind + 2, number),
        )
        first, second = number % SHARED_LAYERS, (number * 7 + 1) % SHARED_LAYERS
        return [config, *(self.layer(layer) for layer in sorted({first, second}))]

    def layer(self, number: int) -> Blob:
        """Return one of the shared layers."""
        digest = digest_of(f"layer {number}".encode())
        size = _LAYER_SIZE + number
        return Blob(f"{_OCI}.layer.v1.tar+gzip", digest, size, self.identifier(5, number))

    @cached_property
    def tagged(self) -> list[int]:
        """Return the numbers of the images that have tags."""
        return [number for number in range(self.images) if self.is_tagged(number)]

    def carrier(self, tag: int) -> int:
        """Return the number of the image that the tag of this number points to."""
        return self.tagged[tag % len(self.tagged)]

    def tag_name(self, tag: int) -> str:
        """Return a tag's name; the first ones belong to the oldest images.

        Five begin with ``rare-``, 4 % with ``mid-``, 8 % with ``old-``, all others with ``v-``.
        """
        if tag == self.tags - 1:
            return LATEST
        middling, old = max(5, self.tags // 25), max(5, self.tags * 8 // 100)
        for prefix, count in (("rare", 5), ("mid", middling), ("old", old)):
            if tag < count:
                return f"{prefix}-{tag:06d}"
            tag -= count
        return f"v-{tag:06d}"

    @cached_property
    def tag_counts(self) -> Counter[int]:
        """Return the number of tags of each tagged image, by its number."""
        return Counter(self.carrier(tag) for tag in range(self.tags))

    def tables(self) -> Iterator[Rows]:
        """Yield all rows of the registry, in an order that satisfies the foreign keys."""
        yield Rows(
            "repositories",
            "id,account_id,name,tag_mutability,source,image_count,tag_count,tagged_image_count,"
            "size_bytes,deleted_image_count,deleted_tag_count,created_at,updated_at,deleted_at,"
            "deleted_by,restorable_until",
            self._repositories(),
        )
        columns = "account_id,folder,repository_count"
        yield Rows("repository_folders", columns, self._folders())
        yield Rows(
            "blob_objects",
            "id,account_id,digest,size,stored_size,encoding,is_current,state,created_at,stored_id",
            self._objects(),
        )
        yield Rows(
            "repository_blobs",
            "repository_id,digest,account_id,object_id,size,manifest_refs,touched_at",
            self._links(),
        )
        yield Rows("manifest_bodies", "account_id,digest,body", self._bodies())
        described = (
            "id,repository_id,account_id,digest,media_type,artifact_type,config_digest,"
            "subject_digest,is_index,manifest_size_bytes,size_bytes,annotations,pushed_at,"
        )
        yield Rows("manifests", described + "tag_count", self._manifests())
        yield Rows("manifest_blobs", "manifest_id,digest,repository_id", self._edges())
        columns = "parent_id,child_digest,repository_id,child_id"
        yield Rows("manifest_children", columns, self._children())
        columns = "repository_id,name,manifest_id,pushed_digest,created_at,updated_at"
        yield Rows("tags", columns, self._tags())
        columns = "repository_id,tag,ordinal,action,digest,previous_digest,principal,occurred_at"
        yield Rows("tag_events", columns, self._events())
        columns = (
            "repository_id,name,sequence,digest,pushed_digest,created_at,has_image,"
            "deleted_at,deleted_by,restorable_until"
        )
        yield Rows("deleted_tags", columns, self._gone_tags())
        deleted = described + "tags,deleted_at,deleted_by,restorable_until"
        yield Rows("deleted_manifests", deleted, self._deleted())
        columns = "manifest_id,digest,object_id,account_id,size"
        yield Rows("deleted_manifest_blobs", columns, self._deleted_blobs())

    def _repositories(self) -> Iterator[tuple[Any, ...]]:
        size = sum(link[4] for link in self._links() if link[0] == self.repository_id)
        begun = self.now - SPAN
        common = (self.account_id, begun)

        def row(kind: int, number: int, name: str, *counts: int, gone: bool = False) -> Any:  # noqa: ANN401
            account_id, moment = common
            end = (self.now - DAY + number, "", self.now + 6 * DAY) if gone else (None, None, None)
            identifier = self.identifier(kind, number)
            head = (identifier, account_id, name, "mutable", "user")
            deleted = counts[4:] or (0, 0)
            return (*head, *counts[:4], *deleted, moment, moment, *end)

        tagged = len(self.tag_counts)
        deleted = (self.tombstones, self.gone_tags)
        yield row(0, 0, REPOSITORY, self.images, self.tags, tagged, size, *deleted)
        for number in range(1, self.repositories):
            team = "few" if number <= 5 else "many"
            yield row(
                0, number, f"{team}/service-{number:06d}", 1, 1, 1, self.copy(number).size_bytes
            )
        for number in range(self.deleted_repositories):
            yield row(6, number, f"gone/service-{number:06d}", 0, 0, 0, 0, gone=True)

    def _folders(self) -> Iterator[tuple[Any, ...]]:
        few = min(5, self.repositories - 1)
        many = self.repositories - 1 - few
        counts = {"": self.repositories, "few/": few, "many/": many, "team/": 1}
        for folder, count in counts.items():
            yield self.account_id, folder, count

    def _images(self) -> Iterator[Image]:
        return (self.image(number) for number in range(self.images))

    def _tombstones(self) -> Iterator[Image]:
        return (self.tombstone(number) for number in range(self.tombstones))

    def _configs(self) -> Iterator[Blob]:
        return (self._blobs(1, number)[0] for number in range(self.images) if number % BLOCK != 2)

    def _objects(self) -> Iterator[tuple[Any, ...]]:
        for blob in self._configs():
            yield self._object(blob)
        for number in range(self.tombstones):
            yield self._object(self._blobs(2, number)[0])
        for number in range(SHARED_LAYERS):
            yield self._object(self.layer(number))

    def _object(self, blob: Blob) -> tuple[Any, ...]:
        stored = (blob.size, blob.size, "plain", True, "live", self.now - SPAN)
        return (blob.object_id, self.account_id, blob.digest, *stored, blob.object_id)

    def _links(self) -> Iterator[tuple[Any, ...]]:
        uses: Counter[str] = Counter()
        for number in range(self.images):
            if number % BLOCK != 2:
                config, *layers = self._blobs(1, number)
                uses.update(layer.digest for layer in layers)
                yield self._link(config, 1)
        for number in range(SHARED_LAYERS):
            layer = self.layer(number)
            if uses[layer.digest]:
                yield self._link(layer, uses[layer.digest])
        for repository, image in self._copies():
            for blob in image.blobs:
                yield self._link(blob, 1, repository)

    def _link(self, blob: Blob, uses: int, repository: str = "") -> tuple[Any, ...]:
        named = (repository or self.repository_id, blob.digest, self.account_id, blob.object_id)
        return (*named, blob.size, uses, self.now)

    def _copies(self) -> Iterator[tuple[str, Image]]:
        for number in range(1, self.repositories):
            yield self.identifier(0, number), self.copy(number)

    def _bodies(self) -> Iterator[tuple[Any, ...]]:
        for images in (self._images(), self._tombstones()):
            for image in images:
                yield self.account_id, image.digest, image.body

    def _described(self, image: Image, repository: str = "") -> tuple[Any, ...]:
        return (
            *(image.id, repository or self.repository_id, self.account_id, image.digest),
            INDEX_TYPE if image.is_index else MANIFEST_TYPE,
            image.artifact_type,
            image.blobs[0].digest if image.blobs else None,
            image.subject,
            image.is_index,
            len(image.body),
            image.size_bytes,
            json.dumps(json.loads(image.body)["annotations"]),
            image.pushed_at,
        )

    def _manifests(self) -> Iterator[tuple[Any, ...]]:
        for image in self._images():
            yield (*self._described(image), self.tag_counts[image.number])
        for repository, image in self._copies():
            yield (*self._described(image, repository), 1)

    def _edges(self) -> Iterator[tuple[Any, ...]]:
        for image in self._images():
            for blob in image.blobs:
                yield image.id, blob.digest, self.repository_id
        for repository, image in self._copies():
            for blob in image.blobs:
                yield image.id, blob.digest, repository

    def _children(self) -> Iterator[tuple[Any, ...]]:
        for number in range(2, self.images, BLOCK):
            index = self.image(number)
            for child in index.children:
                yield index.id, child.digest, self.repository_id, child.id

    def _tags(self) -> Iterator[tuple[Any, ...]]:
        for tag in range(self.tags):
            image = self.image(self.carrier(tag))
            moment = image.pushed_at
            name = self.tag_name(tag)
            yield self.repository_id, name, image.id, image.digest, moment, moment
        for repository, image in self._copies():
            moment = image.pushed_at
            yield repository, "latest", image.id, image.digest, moment, moment

    def _events(self) -> Iterator[tuple[Any, ...]]:
        for tag in range(self.tags - 1):
            image = self.image(self.carrier(tag))
            name = self.tag_name(tag)
            yield self._event(name, "created", image.digest, None, image.pushed_at)
        for tag in range(self.gone_tags):
            image = self.image(self.carrier(tag))
            name = f"gone-{tag:06d}"
            yield self._event(name, "created", image.digest, None, image.pushed_at)
            yield self._event(name, "deleted", None, image.digest, self.now - DAY + tag, 2)
        yield from self._moves()

    def _gone_tags(self) -> Iterator[tuple[Any, ...]]:
        for tag in range(self.gone_tags):
            digest = self.image(self.carrier(tag)).digest
            event = self.tags - 1 + 2 * (tag + 1)  # the number of its deletion, in order of time
            deleted = self.now - DAY + tag
            of = (digest, digest, deleted - DAY, True)
            end = (deleted, "", self.now + 6 * DAY + tag)
            yield self.repository_id, f"gone-{tag:06d}", event, *of, *end

    def _moves(self) -> Iterator[tuple[Any, ...]]:
        """Yield the events of the tag `LATEST`; the last one is its current image."""
        last = self.carrier(self.tags - 1)
        visited = [self.carrier(self.tags - 2 - n) for n in range(self.moves)]
        previous = None
        for ordinal, number in enumerate((*visited, last), 1):
            image = self.image(number)
            action = "moved" if previous else "created"
            yield self._event(LATEST, action, image.digest, previous, image.pushed_at, ordinal)
            previous = image.digest

    def _event(
        self,
        tag: str,
        action: str,
        digest: str | None,
        previous: str | None,
        moment: int,
        ordinal: int = 1,
    ) -> tuple[Any, ...]:
        return self.repository_id, tag, ordinal, action, digest, previous, "", moment

    def _deleted(self) -> Iterator[tuple[Any, ...]]:
        for image in self._tombstones():
            end = ("[]", self.now - DAY + image.number, "", self.now + 6 * DAY)
            yield (*self._described(image), *end)

    def _deleted_blobs(self) -> Iterator[tuple[Any, ...]]:
        for image in self._tombstones():
            for blob in image.blobs:
                yield image.id, blob.digest, blob.object_id, self.account_id, blob.size


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def digest_of(data: bytes) -> str:
    """Return the sha256 digest of `data`."""
    return f"sha256:{sha256(data).hexdigest()}"
