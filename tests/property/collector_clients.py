"""What happens beside the collector in a run: pushes, pulls, deletions, restorations, time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from registry.errors import BlobUnknown, KmsKeyDisabled
from registry.gc.recovery import recover_blob
from registry.metadata.repositories.deleted import list_deleted_repositories
from registry.metadata.repositories.repository import find_repository, lock_repository
from registry.services.changes import Change
from registry.services.events import publish
from registry.services.images.restoration import restore_image, restore_repository
from registry.services.repositories.details import delete_repository
from tests.inprocess import Answer
from tests.property.collector_ledger import image
from tests.property.collector_world import ACCOUNT, BYTES, DAY, IMAGES, Yard
from tests.property.control_documents import BY_DIGEST, CONTENTS, Document
from tests.property.interleaving import drive

TRIES: Final = 3
PARTS: Final[Sequence[Sequence[int] | None]] = (None, (1,), (1, 2), (2,), (2, 3), (0,))
"""Phases of the collector: to the end, or only until something is condemned, or swept."""


Steps = Sequence[Callable[["Client"], None]]


class Client:
    """One client, whose requests come one after another."""

    def __init__(self, yard: Yard, seed: int) -> None:
        self.yard = yard
        self.rng = random.Random(seed)

    def prepare(self, steps: Steps) -> None:
        """Do most of some steps, in order."""
        for step in steps:
            if self.rng.random() < 0.8:
                step(self)

    def work(self, steps: Steps, count: int) -> None:
        """Do some steps of those there are."""
        for step in self.rng.choices(steps, k=count):
            step(self)

    def repository(self) -> str:
        """Return the name of a repository."""
        return self.rng.choice(self.yard.repositories)

    def document(self) -> Document:
        """Return an image, or an index."""
        return self.rng.choice(self.yard.documents)

    def push_blob(self) -> None:
        """Push a blob, or ask for it."""
        self._push_blob(self.repository(), self.rng.choice(self.yard.blobs))

    def push(self) -> None:
        """Push an image as clients do, and again if its blobs were collected meanwhile."""
        repository = self.repository()
        document = self.document()
        for child in document.children:
            self._push(repository, BY_DIGEST[child])
        self._push(repository, document)

    def _push(self, repository: str, document: Document) -> None:
        for _ in range(TRIES):
            for digest in sorted(document.blobs):
                self._push_blob(repository, digest)
            if self._put(repository, document):
                return

    def _push_blob(self, repository: str, digest: str) -> None:
        path = f"/v2/{ACCOUNT}/{repository}/blobs"
        if self.rng.random() < 0.6:
            status = self.yard.ask("HEAD", f"{path}/{digest}").status
            assert status in (200, 404) or (status == 403 and self.yard.keys.are_changed)
            if status == 200:
                return
        self.rng.choice((Client._post, Client._upload, Client._mount))(self, repository, digest)

    def _post(self, repository: str, digest: str) -> None:
        path = f"/v2/{ACCOUNT}/{repository}/blobs/uploads/?digest={digest}"
        self._check_stored(self.yard.ask("POST", path, CONTENTS[digest]))

    def _upload(self, repository: str, digest: str) -> None:
        data = CONTENTS[digest]
        answer = self.yard.ask("POST", f"/v2/{ACCOUNT}/{repository}/blobs/uploads/")
        if answer.status == 404 or self._is_refused(answer):
            return
        location = answer.headers["location"]
        if self.rng.random() < 0.5:
            answer = self.yard.ask("PATCH", location, data)
            if answer.status != 202:
                self._is_refused(answer)
                return
            data = b""
        self._check_stored(self.yard.ask("PUT", f"{location}?digest={digest}", data))

    def _check_stored(self, answer: Answer) -> None:
        """Check the answer to a blob's bytes: no collection refuses them."""
        assert answer.status in (201, 404) or self._is_refused(answer), answer.body

    def _is_refused(self, answer: Answer) -> bool:
        """Return True if the key of the repository cannot be used, or the account is full."""
        if answer.status == 403 and b"registry_bytes" in answer.body:
            assert answer.codes == ["DENIED"]
            self.yard.tally["full"] += 1
            return True
        return answer.status == 403 and self.yard.keys.are_changed

    def _mount(self, repository: str, digest: str) -> None:
        source = self.rng.choice(["", f"&from={ACCOUNT}/{self.repository()}"])
        path = f"/v2/{ACCOUNT}/{repository}/blobs/uploads/?mount={digest}{source}"
        answer = self.yard.ask("POST", path)
        assert answer.status in (201, 202, 404) or self._is_refused(answer)
        if answer.status == 202:
            self._post(repository, digest)

    def put(self) -> None:
        """Put a manifest whose blobs may be here or not."""
        self._put(self.repository(), self.document())

    def _put(self, repository: str, document: Document) -> bool:
        reference = self.rng.choice([document.digest, "v1", "v2"])
        begun = self.yard.ledger.begin()
        path = f"/v2/{ACCOUNT}/{repository}/manifests/{reference}"
        answer = self.yard.ask("PUT", path, document.body, document.media_type)
        if answer.status == 201:
            self.yard.ledger.pushed(repository, document.digest, begun)
            self.yard.tally["pushed"] += 1
            return True
        self.yard.tally["refused"] += 1
        assert answer.codes[0] in ("MANIFEST_BLOB_UNKNOWN", "NAME_UNKNOWN"), answer.body
        return False

    def push_once(self) -> None:
        """Push an image, of which the grace takes no blob before its manifest comes."""
        repository, document = self.repository(), self.rng.choice(IMAGES)
        for digest in sorted(document.blobs):
            self._push_blob(repository, digest)
        assert self._put(repository, document), f"{document.digest} in {repository} was refused"

    def copy(self) -> None:
        """Read a manifest and put it again: its blobs were there, and have their grace."""
        repository, document = self.repository(), self.rng.choice(IMAGES)
        path = f"/v2/{ACCOUNT}/{repository}/manifests/{document.digest}"
        if self.yard.ask("GET", path).status == 200:
            assert self._put(repository, document), f"{document.digest} in {repository} went early"

    def pass_night(self) -> None:
        """Let so much of the grace pass that only who asks for a blob again has the rest."""
        self.yard.clock.advance(18 * 3600)

    def pass_week(self) -> None:
        """Let so much time pass that pushes trust no kept bytes."""
        self.yard.clock.advance(8 * DAY)

    def pass_hours(self) -> None:
        """Let less time pass than any client was promised, all in all."""
        self.yard.clock.advance(3 * 3600)

    def pull(self) -> None:
        """Pull an image, which must be whole if it was there all the time."""
        repository, document = self.repository(), self.document()
        begun = self.yard.ledger.begin()
        missing = self.yard.pull(repository, document)
        must = self.yard.ledger.must_have(repository, document.digest, begun)
        must = must and not self.yard.keys.are_changed
        assert not (missing and must), f"{document.digest} in {repository}: {missing}"

    def delete_image(self) -> None:
        """Delete an image."""
        repository, digest = self.repository(), self.document().digest
        with self.yard.ledger.deleting(image(repository, digest)) as failed:
            path = f"/v2/{ACCOUNT}/{repository}/manifests/{digest}"
            status = self.yard.ask("DELETE", path).status
            assert status in (202, 404, 405)
            if status != 202:
                failed()

    def delete_tag(self) -> None:
        """Delete a tag."""
        path = f"/v2/{ACCOUNT}/{self.repository()}/manifests/v1"
        assert self.yard.ask("DELETE", path).status in (202, 404)

    def delete_blob(self) -> None:
        """Delete a blob, unless a manifest needs it."""
        digest = self.rng.choice(self.yard.blobs)
        path = f"/v2/{ACCOUNT}/{self.repository()}/blobs/{digest}"
        assert self.yard.ask("DELETE", path).status in (202, 404, 405)

    def restore_image(self) -> None:
        """Restore an image."""
        repository, document = self.repository(), self.document()
        begun = self.yard.ledger.begin()
        change = self.yard.ctx.change_by("")
        write = self.yard.database.write
        if drive(write(_restore_image, repository, document.digest, change)):
            self.yard.ledger.pushed(repository, document.digest, begun)
            self.yard.tally["restored"] += 1

    def delete_repository(self) -> None:
        """Delete a repository with all it holds."""
        repository = self.repository()
        account_id, change = self.yard.account_id, self.yard.ctx.change_by("")
        with self.yard.ledger.deleting(image(repository, "")) as failed:
            write = self.yard.database.write
            if not drive(write(_delete_repository, account_id, repository, change)):
                failed()

    def restore_repository(self) -> None:
        """Restore a repository that was deleted."""
        account_id, change = self.yard.account_id, self.yard.ctx.change_by("")
        drive(self.yard.database.write(_restore_repository, account_id, change))

    def recover(self) -> None:
        """Bring a blob back from the quarantine."""
        digest = self.rng.choice(self.yard.blobs)
        found = self.yard.query("SELECT id FROM repositories WHERE deleted_at IS NULL")
        if not found:
            return
        try:
            ctx, account_id = self.yard.ctx, self.yard.account_id
            drive(recover_blob(ctx, account_id, self.rng.choice(found)[0], digest))
        except BlobUnknown:
            return
        except KmsKeyDisabled:
            assert self.yard.keys.are_changed
            return
        self.yard.tally["recovered"] += 1

    def bind(self) -> None:
        """Let a repository write under another key."""
        key = self.rng.choice([*self.yard.keys.customers, None])
        self.yard.keys.bind(self.repository(), key)

    def disable_key(self) -> None:
        """Disable a key."""
        self.yard.keys.disable(self.rng.choice(self.yard.keys.customers))

    def enable_key(self) -> None:
        """Enable a key."""
        self.yard.keys.enable(self.rng.choice(self.yard.keys.customers))

    def delete_key(self) -> None:
        """Delete a key."""
        self.yard.keys.delete(self.rng.choice(self.yard.keys.customers))

    def shred(self) -> None:
        """Erase what deleted keys have wrapped."""
        self.yard.keys.shred()

    def pass_time(self) -> None:
        """Let time pass: uploads settle, or what was deleted cannot be restored any more."""
        self.yard.clock.advance(self.rng.choice([2 * 3600, 8 * DAY]))

    def limit_bytes(self) -> None:
        """Set how many bytes the account may store, or forget it."""
        self.yard.limit_bytes(self.rng.choice(BYTES))

    def purge(self) -> None:
        """Let go of what cannot be restored any more."""
        self.yard.purge()

    def scan(self) -> None:
        """Look for orphans among what is some hours old."""
        self.yard.clock.advance(2 * 3600)
        self.yard.scan()

    def half_collect(self) -> None:
        """Run the collector until something is swept."""
        self.yard.collect((1, 2))

    def collect(self) -> None:
        """Run the collector, or a part of it."""
        self.yard.collect(self.rng.choice(PARTS))


PUSHES: Final[Steps] = (Client.push, Client.push, Client.push_blob, Client.put, Client.pull)
DELETIONS: Final[Steps] = (
    *(Client.delete_image, Client.delete_image, Client.delete_blob, Client.delete_tag),
    *(Client.restore_image, Client.restore_image, Client.delete_repository),
    *(Client.restore_repository, Client.recover),
)
CHORES: Final[Steps] = (
    *(Client.collect, Client.collect, Client.collect),
    *(Client.purge, Client.scan, Client.pass_time, Client.limit_bytes),
)
KEYS: Final[Steps] = (
    *(Client.bind, Client.bind, Client.disable_key, Client.enable_key),
    *(Client.delete_key, Client.shred),
)
ALL: Final[Steps] = (*PUSHES, *DELETIONS, *CHORES)


class Scene(NamedTuple):
    """What was there before, most of it, and who meets then; each takes some of its steps."""

    before: Steps
    tasks: Sequence[Steps]


_BLOBS: Final = (Client.push_blob, Client.push_blob, Client.push_blob)
SCENES: Final = (
    Scene((Client.push, *DELETIONS, *CHORES), (ALL, ALL, PUSHES)),
    Scene(
        (Client.push, Client.delete_image, *_BLOBS),
        ((Client.collect,), PUSHES, PUSHES, DELETIONS),
    ),
    Scene(_BLOBS, ((Client.collect,), (Client.push_blob, Client.put), (Client.push_blob,))),
    Scene(
        (*_BLOBS, Client.half_collect),
        (
            (Client.recover,),
            (Client.recover, Client.push_blob),
            (Client.recover, Client.put),
            CHORES,
        ),
    ),
    Scene(
        (*_BLOBS, Client.half_collect, Client.pass_time),
        ((Client.scan,), (Client.push_blob,), (Client.push_blob,), CHORES),
    ),
    Scene(  # bytes that were verified long ago are written anew
        (*_BLOBS, Client.push, Client.pass_week),
        (
            (Client.push_blob, Client.pull),
            (Client.push_blob, Client.push_blob),
            (Client.delete_image, Client.delete_blob, Client.recover),
            CHORES,
        ),
    ),
    Scene(
        (Client.push, Client.delete_image, Client.pass_time, Client.push),
        (DELETIONS, (Client.restore_image,), (Client.purge, Client.collect), PUSHES),
    ),
    Scene(  # bytes are wrapped again for other repositories
        (Client.push, Client.bind, Client.push, Client.bind, Client.push),
        (PUSHES, (Client.bind, Client.push_blob), DELETIONS, CHORES),
    ),
    Scene(
        (Client.push, Client.bind, Client.push, Client.bind, Client.push, Client.bind),
        (KEYS, PUSHES, DELETIONS, (Client.shred, Client.collect)),
    ),
    Scene(
        (Client.bind, Client.bind, Client.push, Client.delete_image, Client.half_collect),
        ((Client.delete_key, Client.shred), (Client.restore_image, Client.recover), PUSHES, CHORES),
    ),
    Scene(  # a key is deleted while bytes are written anew
        (*_BLOBS, Client.bind, Client.push, Client.bind, Client.push, Client.pass_week),
        ((Client.push_blob, Client.push), (Client.delete_key, Client.shred), KEYS, PUSHES),
    ),
)


_RELYING: Final[Sequence[Steps]] = (
    (Client.copy, Client.push_once),
    (Client.copy,),
    (Client.push_once,),
    (Client.delete_image, Client.delete_image, Client.collect),
    (Client.pass_hours, Client.collect),
)
PROMISED: Final = (
    Scene((Client.push_once, Client.push_once, Client.pass_time, Client.pass_time), _RELYING),
    Scene((Client.push_once, Client.pass_time, *_BLOBS, Client.pass_night), _RELYING),
)
"""With a grace: what a client was told of stays until its next request, if that comes in time."""


def _restore_image(tx: Connection, name: str, digest: str, change: Change) -> bool:
    repository = find_repository(tx, ACCOUNT, name)
    if repository is None or lock_repository(tx, repository.id) is None:
        return False
    try:
        _, events = restore_image(tx, repository, digest, change)
    except (Conflict, NotFound):
        return False
    publish(tx, change, repository, events)
    return True


def _delete_repository(tx: Connection, account_id: str, name: str, change: Change) -> bool:
    found = find_repository(tx, ACCOUNT, name)
    if found is None:
        return False
    try:
        delete_repository(tx, account_id, found.id, change, force=True)
    except NotFound:
        return False
    return True


def _restore_repository(tx: Connection, account_id: str, change: Change) -> None:
    for found in list_deleted_repositories(tx, account_id, change.now, None, 1):
        with suppress(Conflict, NotFound):
            restore_repository(tx, account_id, found.id, change)
