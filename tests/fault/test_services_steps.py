"""Pushes that fail, or die, at every step through the seams: nothing acknowledged is lost.

Afterwards another worker over the same rows and files finds each blob whole and linked, or its
session ready to go on; and never a manifest without its blobs (reliability: commit, manifest PUT).
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, cast

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import OutcomeUnknown
from registry.blobstore.disk.store import FilesystemStore
from registry.blobstore.store import BlobStore
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.services.blobs.upload_leases import Leases
from registry.settings.groups import Limits
from tests.fault.seams import Died, SteppingDatabase, SteppingStore, Steps
from tests.inprocess import IN_FILES, Answer, Client, Registry, open_registry
from tests.recount import check_counters, object_ids, querying, upload_ids

LAYER: Final = bytes(range(256)) * 3
CONFIG: Final = b"{}"
HALF: Final = len(LAYER) // 2
MANIFEST: Final = json.dumps(
    {
        "schemaVersion": 2,
        "config": {
            "mediaType": "application/x-config",
            "digest": digest_of(CONFIG),
            "size": len(CONFIG),
        },
        "layers": [
            {
                "mediaType": "application/x-layer",
                "digest": digest_of(LAYER, "sha512"),
                "size": len(LAYER),
            }
        ],
    }
).encode()
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"
RECORD: Final = "before _record_rows"
SETTLED: Final = (
    *("before advance_upload", "after advance_upload", "before _keep", "after _keep"),
    *("before begin_in_target", "after begin_in_target", "after _record_rows"),
)
"""Steps after which the registry finds out the outcome, or tries again."""


def fail() -> NoReturn:
    raise OutcomeUnknown("struck")


def die() -> NoReturn:
    raise Died


@dataclass
class Push:
    """A client's push of one image, which can be taken up where it was left."""

    location: str = ""
    acknowledged: int = 0
    digests: set[str] = field(default_factory=set)
    """What the registry has answered 201 for."""

    async def config(self, client: Client) -> bool:
        """Push the config in one request; say whether the client may go on."""
        digest = digest_of(CONFIG)
        return self._noted(
            digest, await client.request("POST", f"{UPLOADS}?digest={digest}", CONFIG)
        )

    async def layer(self, client: Client) -> bool:
        """Push the layer: POST, two PATCHes, PUT; from where the server says it is."""
        digest = digest_of(LAYER, "sha512")
        if not await self._open_session(client):
            return False
        while self.acknowledged < len(LAYER):
            part = LAYER[self.acknowledged : self.acknowledged + HALF]
            last = self.acknowledged + len(part) - 1
            place = {"content-range": f"{self.acknowledged}-{last}"}
            answer = await client.request("PATCH", self.location, part, place)
            if answer.status != 202:
                return False
            self.acknowledged = last + 1
        return self._noted(digest, await client.request("PUT", f"{self.location}?digest={digest}"))

    async def _open_session(self, client: Client) -> bool:
        if self.location:
            answer = await client.request("GET", self.location)
            if answer.status == 204:
                end = int(answer.headers["range"].removeprefix("0-"))
                at = end + 1 if end else 0
                assert at >= self.acknowledged, "acknowledged bytes are gone"
                self.acknowledged = at
                return True
            assert answer.codes == ["BLOB_UPLOAD_UNKNOWN"]
        answer = await client.request("POST", UPLOADS)
        if answer.status != 202:
            return False
        self.location, self.acknowledged = answer.headers["location"], 0
        return True

    async def manifest(self, client: Client) -> bool:
        """Put the manifest under a tag."""
        kind = {"content-type": OCI_MANIFEST}
        answer = await client.request("PUT", "/v2/dev/app/manifests/v1", MANIFEST, kind)
        assert answer.status != 404, answer.body
        return self._noted(digest_of(MANIFEST), answer)

    async def all(self, client: Client) -> bool:
        """Push everything that is not acknowledged yet."""
        for digest, push in (
            (digest_of(CONFIG), self.config),
            (digest_of(LAYER, "sha512"), self.layer),
            (digest_of(MANIFEST), self.manifest),
        ):
            if digest not in self.digests and not await push(client):
                return False
        return True

    def _noted(self, digest: str, answer: Answer) -> bool:
        if answer.status == 201:
            self.digests.add(digest)
        return answer.status == 201


class Form(NamedTuple):
    """How blobs are stored."""

    name: str
    limits: Limits
    calls: frozenset[str]
    """Those that a push makes: each has a step before and one after it."""
    is_sealed: bool = False
    fewest_steps: int = 30


_ROWS: Final = frozenset({"_create", "_record_rows", "put_manifest"})
_SMALL: Final = _ROWS | {"begin_in_target", "_keep"}
_BYTES: Final = frozenset({"stage", "resume", "rewind", "write", "flush", "commit"})
_LARGE: Final = _ROWS | _BYTES | {"_take_free", "advance_upload"}
FORMS: Final = (
    Form("files", IN_FILES, _LARGE | {"_begin"}),
    Form("inline", Limits(), _SMALL, fewest_steps=12),
    Form("inline, sealed", Limits(), _SMALL, is_sealed=True, fewest_steps=12),
    Form("inline at first", Limits(inline_max_bytes=HALF), _LARGE | {"begin_in_target"}),
    Form("sealed", IN_FILES, _LARGE | {"_begin"}, is_sealed=True),
)
AS_THE_NEXT: Final = frozenset(f"after {call}" for call in _BYTES)
"""Steps of a request that goes on: a death after them leaves what one before the next leaves."""


@asynccontextmanager
async def worker(
    url: str, folder: Path, form: Form, steps: Steps | None = None
) -> AsyncIterator[Registry]:
    """Run a worker over rows and files that outlive it; it takes all others for dead."""
    steps = steps or Steps()
    with closing(FilesystemStore(folder)) as store:
        async with open_registry(
            url,
            cast("BlobStore", SteppingStore(store, steps)),
            limits=form.limits,
            seals=form.is_sealed,
            around=lambda database: SteppingDatabase(database, steps),
            leases=Leases(uuid7(), lambda _: True),
        ) as registry:
            yield registry


async def check_acknowledged(registry: Registry, push: Push) -> None:
    """Check that what was answered is there, whole, and that no manifest lacks a blob."""
    client = registry.client
    for digest, data in ((digest_of(CONFIG), CONFIG), (digest_of(LAYER, "sha512"), LAYER)):
        answer = await client.request("GET", f"/v2/dev/app/blobs/{digest}")
        assert answer.status == 200 or digest not in push.digests, "an acknowledged blob is gone"
        assert answer.status == 404 or answer.body == data
    answer = await client.request("GET", "/v2/dev/app/manifests/v1")
    assert answer.status == 200 or digest_of(MANIFEST) not in push.digests
    if answer.status == 200:
        for digest in (digest_of(CONFIG), digest_of(LAYER)):
            blob = await client.request("GET", f"/v2/dev/app/blobs/{digest}")
            assert blob.status == 200


async def steps_of(url: str, folder: Path, form: Form) -> list[str]:
    """Push without a strike; return the steps."""
    steps = Steps()
    async with worker(url, folder, form, steps) as registry:
        steps.taken.clear()
        assert await Push().all(registry.client)
    return steps.taken


async def struck_push(
    url: str, folder: Path, form: Form, number: int, strike: Callable[[], NoReturn]
) -> None:
    """Push with a strike at one step, then finish the push elsewhere."""
    push, steps = Push(), Steps()
    async with worker(url, folder, form, steps) as registry:
        steps.strike_at(number, strike)
        with suppress(Died):
            is_whole = await push.all(registry.client)
            struck = steps.taken[number]
            # A commit whose answer is lost is not a failure. A push in one request, which is the
            # first to record a blob, tries again, and so does the end of a small session.
            is_first_record = struck == RECORD and steps.taken.index(RECORD) == number
            is_small = struck == RECORD and form.limits.inline_max_bytes >= len(LAYER)
            assert is_whole == (is_first_record or is_small or struck in SETTLED)
    async with worker(url, folder, form) as registry:
        await check_acknowledged(registry, push)
        assert await push.all(registry.client), f"cannot go on after a strike {steps.taken[number]}"
        await check_acknowledged(registry, push)


def leaked(url: str, folder: Path) -> tuple[set[str], set[str]]:
    """Return the objects and the staged bytes that no row knows; every row must have its bytes."""
    with querying(url) as query, closing(FilesystemStore(folder)) as store:
        check_counters(query, "dev")
        objects = {one.object_id for one in store.files.list_objects()}
        staged = {one.object_id for one in store.files.list_staged()}
        assert object_ids(query) <= objects
        return objects - object_ids(query), staged - upload_ids(query)


@pytest.mark.parametrize(
    ("strike", "form"),
    [
        *((fail, form) for form in FORMS if form.name != "sealed"),
        *((die, form) for form in FORMS),
    ],
    ids=lambda each: each.name if isinstance(each, Form) else each.__name__,
)
def test_a_push_goes_on_after_a_strike_at_any_step(
    migrated_file: Path, tmp_path: Path, strike: Callable[[], NoReturn], form: Form
) -> None:
    """Of sealed files, a failure is handled as of plain ones, but not what a death leaves."""

    def place(name: str) -> tuple[str, Path]:
        here = tmp_path / name
        here.mkdir()
        shutil.copy(migrated_file, here / "metadata.db")
        return f"sqlite:///{here}/metadata.db", here / "blobs"

    steps = asyncio.run(steps_of(*place("whole"), form))
    assert set(steps) == {
        f"{moment} {call}" for moment in ("before", "after") for call in form.calls
    }
    assert len(steps) >= form.fewest_steps
    for number, step in enumerate(steps):
        if strike is die and step in AS_THE_NEXT:
            continue
        url, blobs = place(str(number))
        asyncio.run(struck_push(url, blobs, form, number, strike))
        objects, staged = leaked(url, blobs)
        # Bytes of one blob may be left to the collector where their row was never written, or
        # where nobody was left to remove them.
        assert len(objects) + len(staged) <= 1, step
        if strike is fail and step != "after stage":
            assert not staged, step
        shutil.rmtree(blobs.parent)
