"""Presigned URLs, with which clients fetch the bytes of objects directly from the bucket.

Signing makes no request, but may renew credentials that expire. So it runs in a thread, after the
check of the object that each new URL needs anyway. A URL is reused for half of its life.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from registry.blobstore.s3.bucket import Bucket
from registry.blobstore.s3.bucket_layout import object_key
from registry.blobstore.s3.store import S3Store
from registry.blobstore.staging import canonical_id

LIFE_SECONDS: Final = 300
"""Time in which a client can begin to read at a URL."""
_GIVEN_SECONDS: Final = LIFE_SECONDS / 2
_MOST: Final = 2048
"""Maximum URLs in memory, each of some 600 bytes."""


class _Made(NamedTuple):
    url: str
    until: float


class PresignedLinks:
    """Makes URLs of the objects of a store (`BlobLinks`). For calls on the event loop only."""

    def __init__(self, store: S3Store, clock: Callable[[], float] = time.monotonic) -> None:
        """Use the bucket of a store, at the endpoint that clients can reach."""
        own = store.files.bucket
        endpoint = own.settings.store_s3_public_endpoint or own.settings.store_s3_endpoint
        self._bucket = Bucket(replace(own.settings, store_s3_endpoint=endpoint))
        self._store = store
        self._clock = clock
        self._made: OrderedDict[str, _Made] = OrderedDict()

    def close(self) -> None:
        """Release the client; it has no connection."""
        self._bucket.close()

    def known(self, object_id: str) -> str | None:
        """Return a recent URL of an object, or None (`BlobLinks.known`)."""
        made = self._made.get(object_id)
        return made.url if made is not None and self._clock() < made.until else None

    async def link(self, object_id: str, stored_size: int) -> str:
        """Return a URL of an object after checking that it exists (`BlobLinks.link`)."""
        url = await self._store.run(self._sign, object_id, stored_size)
        self._made[object_id] = _Made(url, self._clock() + _GIVEN_SECONDS)
        self._made.move_to_end(object_id)
        while len(self._made) > _MOST:
            self._made.popitem(last=False)
        return url

    def _sign(self, object_id: str, stored_size: int) -> str:
        self._store.files.check(object_id, stored_size)
        return self._bucket.presigned(object_key(canonical_id(object_id)), LIFE_SECONDS)
