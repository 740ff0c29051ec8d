"""Both planes of an account as dictionaries: what each change must answer, and must leave behind.

Lifecycle rules are told by `lifecycle_oracle`. Moments are those a test reads off its clock after
a request, so they are right to a few milliseconds: let time pass in spans that meet no limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from tests.property import lifecycle_oracle
from tests.property.control_documents import BY_DIGEST, SIZES, Document
from tests.property.lifecycle_oracle import DAY, HOUR

HISTORY: Final = 365 * DAY


class Outcome(Enum):
    """What becomes of a request."""

    DONE = auto()
    NEW = auto()
    """Done, and what it asked for was not there before."""
    UNKNOWN = auto()
    IMMUTABLE = auto()
    LISTED = auto()
    """An index lists it."""
    PINNED = auto()
    CONFLICT = auto()


class ChangeContext(NamedTuple):
    """Who does something, when."""

    principal: str
    now: int


class TagEvent(NamedTuple):
    """An event of a tag."""

    tag: str
    action: str
    digest: str | None
    previous: str | None
    principal: str
    at: int


@dataclass
class Image:
    """An image that is there."""

    document: Document
    pushed_at: int
    restored_at: int | None = None
    pins: dict[str, int | None] = field(default_factory=dict)
    """Until when each holds; None: until it is taken away."""

    def held(self, now: int) -> set[str]:
        """Return the pins that are not over."""
        return {name for name, until in self.pins.items() if until is None or until > now}


@dataclass
class Tombstone:
    """An image that was deleted."""

    document: Document
    pushed_at: int
    tags: list[str]
    until: int
    """When it cannot be restored any more."""
    children: tuple[str, ...] = ()
    """Those that were here when it was deleted: they come back with it."""


class DeletedTag(NamedTuple):
    """A tag that was deleted."""

    digest: str
    """What it pointed to."""
    until: int
    """When it cannot be restored any more."""


@dataclass
class Repository:
    """One repository, live or deleted."""

    id: str
    name: str
    is_immutable: bool = False
    exclusions: list[str] = field(default_factory=list)
    blobs: set[str] = field(default_factory=set)
    images: dict[str, Image] = field(default_factory=dict)
    """By sha256."""
    tags: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Where each points, since when."""
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    deleted: dict[str, DeletedTag] = field(default_factory=dict)
    history: list[TagEvent] = field(default_factory=list)
    rules: list[dict[str, Any]] | None = None
    next_run_at: int = 0
    deleted_at: int | None = None
    until: int = 0
    """Of a deleted one: when it cannot be restored any more."""

    def may_move(self, tag: str) -> bool:
        return not self.is_immutable or any(fnmatchcase(tag, glob) for glob in self.exclusions)

    def tags_of(self, digest: str) -> list[str]:
        return sorted(tag for tag, (to, _) in self.tags.items() if to == digest)

    def parents_of(self, digest: str) -> list[str]:
        return [one for one, image in self.images.items() if digest in image.document.children]

    def children_of(self, document: Document) -> tuple[str, ...]:
        """Return what an index lists and is here: a child may have been deleted by force."""
        return tuple(child for child in document.children if child in self.images)

    def size_of(self, document: Document) -> int:
        """Return the bytes of the distinct blobs under a manifest that are here."""
        return sum(SIZES[digest] for digest in self._tree(document))

    def _tree(self, document: Document) -> frozenset[str]:
        children = map(BY_DIGEST.__getitem__, self.children_of(document))
        return document.blobs.union(*map(self._tree, children))

    def newest_first(self) -> list[str]:
        """Return the digests of all images."""
        return sorted(self.images, key=lambda digest: -self.images[digest].pushed_at)

    @property
    def size(self) -> int:
        used = set[str]().union(*(image.document.blobs for image in self.images.values()))
        return sum(SIZES[digest] for digest in used)

    def restorable(self, now: int) -> dict[str, list[str]]:
        """Return the tags of each deleted image that can be had again."""
        return {digest: each.tags for digest, each in self.tombstones.items() if each.until > now}

    # Tags

    def put(self, document: Document, tags: Sequence[str], change: ChangeContext) -> Outcome:
        """Store a manifest that has all it refers to, and point tags to it; or nothing."""
        if any(self._is_fixed_elsewhere(tag, document.digest) for tag in tags):
            return Outcome.IMMUTABLE
        is_new = document.digest not in self.images
        if is_new:
            self.images[document.digest] = Image(document, change.now)
        for tag in tags:
            self._point(tag, document.digest, change)
        return Outcome.NEW if is_new else Outcome.DONE

    def retag(self, tag: str, digest: str, change: ChangeContext) -> Outcome:
        if digest not in self.images:
            return Outcome.UNKNOWN
        if self._is_fixed_elsewhere(tag, digest):
            return Outcome.IMMUTABLE
        is_new = tag not in self.tags
        self._point(tag, digest, change)
        return Outcome.NEW if is_new else Outcome.DONE

    def delete_tag(self, tag: str, change: ChangeContext, undelete_days: int) -> Outcome:
        if tag not in self.tags:
            return Outcome.UNKNOWN
        if not self.may_move(tag):
            return Outcome.IMMUTABLE
        self._drop(tag, change, undelete_days)
        return Outcome.DONE

    def deleted_tags(self, now: int) -> dict[str, str]:
        """Return the tags that can be restored, each with its image, which is there."""
        return {
            tag: deleted.digest
            for tag, deleted in self.deleted.items()
            if deleted.until > now and deleted.digest in self.images
        }

    def restore_tag(self, tag: str, change: ChangeContext) -> Outcome:
        if tag in self.tags:
            return Outcome.CONFLICT
        deleted = self.deleted.get(tag)
        if deleted is None or deleted.until <= change.now:
            return Outcome.UNKNOWN
        if deleted.digest not in self.images:
            return Outcome.CONFLICT
        self._set(tag, "restored", deleted.digest, None, change)
        return Outcome.DONE

    def _is_fixed_elsewhere(self, tag: str, digest: str) -> bool:
        return tag in self.tags and self.tags[tag][0] != digest and not self.may_move(tag)

    def _point(self, tag: str, digest: str, change: ChangeContext) -> None:
        current = self.tags[tag][0] if tag in self.tags else None
        if current != digest:
            self._set(tag, "moved" if current else "created", digest, current, change)

    def _set(
        self, tag: str, action: str, digest: str, previous: str | None, change: ChangeContext
    ) -> None:
        self.tags[tag] = digest, change.now
        self.deleted.pop(tag, None)
        self.history.append(TagEvent(tag, action, digest, previous, *change))

    def _drop(self, tag: str, change: ChangeContext, undelete_days: int) -> None:
        digest, _ = self.tags.pop(tag)
        if undelete_days:
            self.deleted[tag] = DeletedTag(digest, change.now + undelete_days * DAY)
        self.history.append(TagEvent(tag, "deleted", None, digest, *change))

    # Images

    def refusal(
        self, digest: str, now: int, *, heeds_pins: bool, force: bool = False
    ) -> Outcome | None:
        """Return why an image cannot be deleted."""
        if digest not in self.images:
            return Outcome.UNKNOWN
        if force:
            return None
        if heeds_pins and self.images[digest].held(now):
            return Outcome.PINNED
        return Outcome.LISTED if self.parents_of(digest) else None

    def soft_delete(self, digest: str, change: ChangeContext, undelete_days: int) -> None:
        """Delete an image with its tags; for a while it can be restored."""
        image, tags = self.images[digest], self.tags_of(digest)
        if undelete_days:
            until = change.now + undelete_days * DAY
            children = self.children_of(image.document)
            self.tombstones[digest] = Tombstone(
                image.document, image.pushed_at, tags, until, children
            )
            for tag, deleted in self.deleted.items():
                if deleted.digest == digest:
                    self.deleted[tag] = DeletedTag(digest, min(deleted.until, until))
        else:
            self._forget({digest})
        for tag in tags:
            self._drop(tag, change, undelete_days)
        del self.images[digest]

    def purge(self, now: int) -> None:
        """Do what the chores do."""
        over = {digest for digest, tombstone in self.tombstones.items() if tombstone.until <= now}
        self.tombstones = {
            d: tombstone for d, tombstone in self.tombstones.items() if d not in over
        }
        self._forget(over - self.images.keys())

    def _forget(self, digests: set[str]) -> None:
        """Let deleted tags go with their images, which cannot be restored."""
        kept = self.deleted.items()
        self.deleted = {tag: each for tag, each in kept if each.digest not in digests}

    def plan(self, digest: str, now: int) -> Outcome | set[str]:
        """Return what must be restored with an image (itself too), or why it cannot be."""
        tombstones = self.restorable(now)
        if digest in self.images:
            return Outcome.CONFLICT
        if digest not in tombstones:
            return Outcome.UNKNOWN
        found, waiting = set[str](), [digest]
        while waiting:
            one = waiting.pop()
            if one not in tombstones:
                return Outcome.CONFLICT
            found.add(one)
            children = self.tombstones[one].children
            waiting += [child for child in children if child not in self.images]
        return found

    def restore_image(self, digest: str, change: ChangeContext) -> list[str]:
        """Restore an image whose children are there; return the tags that point to it again."""
        tombstone = self.tombstones.pop(digest)
        assert all(child in self.images for child in tombstone.children)
        self.images[digest] = Image(tombstone.document, tombstone.pushed_at, change.now)
        self.blobs |= tombstone.document.blobs
        tags = [tag for tag in tombstone.tags if tag not in self.tags]
        for tag in tags:
            self._set(tag, "restored", digest, None, change)
        return tags

    def expiring(self, now: int) -> set[str]:
        """Return what the lifecycle policy takes."""
        assert self.rules is not None
        images = [self._as_rules_see(digest, now) for digest in self.images]
        return set(lifecycle_oracle.expire(images, self.rules, now))

    def _as_rules_see(self, digest: str, now: int) -> lifecycle_oracle.Image:
        image = self.images[digest]
        losses = [change.at for change in self.history if change.previous == digest]
        return lifecycle_oracle.Image(
            name=digest,
            pushed_at=image.pushed_at,
            tags=tuple((tag, self.tags[tag][1]) for tag in self.tags_of(digest)),
            untagged_at=max(losses, default=None),
            restored_at=image.restored_at,
            children=self.children_of(image.document),
            subject=image.document.subject,
            is_pinned=bool(image.held(now)),
        )


@dataclass
class Model:
    """All repositories of one account."""

    live: dict[str, Repository] = field(default_factory=dict)
    deleted: dict[str, Repository] = field(default_factory=dict)
    """By id, until they are purged."""
    undelete_days: int = 7

    @property
    def everything(self) -> list[Repository]:
        return [*self.live.values(), *self.deleted.values()]

    def restorable(self, now: int) -> set[str]:
        """Return the ids of the repositories that can be restored."""
        return {each.id for each in self.deleted.values() if each.until > now}

    def delete_repository(self, name: str, now: int, *, force: bool) -> Outcome:
        if self.live[name].images and not force:
            return Outcome.CONFLICT
        gone = self.live.pop(name)
        gone.deleted_at, gone.until = now, now + self.undelete_days * DAY
        self.deleted[gone.id] = gone
        return Outcome.DONE

    def restore_repository(self, repository_id: str, now: int) -> Outcome:
        if repository_id in {each.id for each in self.live.values()}:
            return Outcome.CONFLICT
        if repository_id not in self.restorable(now):
            return Outcome.UNKNOWN
        if self.deleted[repository_id].name in self.live:
            return Outcome.CONFLICT
        back = self.deleted.pop(repository_id)
        back.deleted_at = None
        self.live[back.name] = back
        return Outcome.DONE

    def purge(self, now: int) -> None:
        """Do what the chores do."""
        for each in self.everything:
            each.purge(now)
            each.history = [change for change in each.history if change.at > now - HISTORY]
        for each in list(self.deleted.values()):
            if each.until > now:
                continue
            each.images, each.tags, each.tombstones, each.blobs = {}, {}, {}, set()
            each.deleted = {}
            each.history = []
            assert each.deleted_at is not None
            if each.deleted_at + HOUR <= now:
                del self.deleted[each.id]
